//! Formats of sizes, durations and times for screens.

use std::time::Duration;

use headroom_types::{Bytes, UnixMillis};

/// `4.4G`, `512M`, `64K`, `0`: for columns.
pub(crate) fn short(bytes: Bytes) -> String {
    const UNITS: [(u64, &str); 4] = [
        (1 << 40, "T"),
        (1 << 30, "G"),
        (1 << 20, "M"),
        (1 << 10, "K"),
    ];
    let n = bytes.get();
    let Some((unit, name)) = UNITS.into_iter().find(|(unit, _)| n >= *unit) else {
        return n.to_string();
    };
    let tenths = (u128::from(n) * 10 + u128::from(unit) / 2) / u128::from(unit);
    let (whole, tenth) = (tenths / 10, tenths % 10);
    let small = name == "K" || name == "M" && whole >= 10;
    if tenth == 0 || small {
        format!("{}{name}", if small { (tenths + 5) / 10 } else { whole })
    } else {
        format!("{whole}.{tenth}{name}")
    }
}

/// A value, or a dash.
pub(crate) fn or_dash(value: Option<impl ToString>) -> String {
    value.map_or_else(|| "–".to_owned(), |value| value.to_string())
}

/// [`short`], or a dash.
pub(crate) fn short_or_dash(bytes: Option<Bytes>) -> String {
    or_dash(bytes.map(short))
}

/// Gibibytes with one decimal, without the unit.
pub(crate) fn gib(bytes: Bytes) -> String {
    format!("{:.1}", bytes.as_gib_f64())
}

/// Whole per cent; `–` if the whole is zero.
pub(crate) fn percent(part: Bytes, whole: Bytes) -> String {
    if whole.is_zero() {
        return "–".to_owned();
    }
    format!(
        "{}%",
        (u128::from(part.get()) * 100 + u128::from(whole.get()) / 2) / u128::from(whole.get())
    )
}

/// `58s`, `2m10s`, `1h02m`, `6d4h`.
pub(crate) fn span(time: Duration) -> String {
    let s = time.as_secs();
    match s {
        0..60 => format!("{s}s"),
        60..3600 => format!("{}m{:02}s", s / 60, s % 60),
        3600..86_400 => format!("{}h{:02}m", s / 3600, s % 3600 / 60),
        _ => format!("{}d{}h", s / 86_400, s % 86_400 / 3600),
    }
}

/// Seconds with one decimal below ten, else as [`span`].
pub(crate) fn fine_span(time: Duration) -> String {
    if time < Duration::from_secs(10) {
        format!("{:.1}s", time.as_secs_f64())
    } else {
        span(time)
    }
}

/// `0:42`, `12:07`, `1:02:03`: time since a start.
pub(crate) fn clock(time: Duration) -> String {
    let s = time.as_secs();
    if s < 3600 {
        format!("{}:{:02}", s / 60, s % 60)
    } else {
        format!("{}:{:02}:{:02}", s / 3600, s % 3600 / 60, s % 60)
    }
}

/// `10:41:07`, UTC.
pub(crate) fn time_of_day(time: UnixMillis) -> String {
    let s = time.0 / 1000 % 86_400;
    format!("{:02}:{:02}:{:02}", s / 3600, s % 3600 / 60, s % 60)
}

/// `2026-11-21T10:41:07.250Z`.
pub(crate) fn rfc3339(time: UnixMillis) -> String {
    let (year, month, day) = civil(time.0 / 86_400_000);
    format!(
        "{year:04}-{month:02}-{day:02}T{}.{:03}Z",
        time_of_day(time),
        time.0 % 1000
    )
}

/// Year, month and day of a number of days since 1970-01-01, in 400-year eras that begin on 1
/// March.
fn civil(days: u64) -> (u64, u64, u64) {
    let z = days + 719_468;
    let (era, day_of_era) = (z / 146_097, z % 146_097);
    let year_of_era =
        (day_of_era - day_of_era / 1460 + day_of_era / 36_524 - day_of_era / 146_096) / 365;
    let day_of_year = day_of_era - (365 * year_of_era + year_of_era / 4 - year_of_era / 100);
    let month = (5 * day_of_year + 2) / 153;
    let day = day_of_year - (153 * month + 2) / 5 + 1;
    let (month, carry) = if month < 10 {
        (month + 3, 0)
    } else {
        (month - 9, 1)
    };
    (year_of_era + era * 400 + carry, month, day)
}

/// Memory × time, in the largest readable unit.
pub(crate) fn byte_time(byte_ms: u128) -> String {
    let gib_s = gib_seconds(byte_ms);
    match gib_s {
        g if g >= 3600.0 => format!("{:.1} GiB·h", g / 3600.0),
        g if g >= 60.0 => format!("{:.1} GiB·min", g / 60.0),
        g if g >= 0.05 || byte_ms == 0 => format!("{g:.1} GiB·s"),
        g => format!("{:.0} MiB·s", g * 1024.0),
    }
}

/// Byte-milliseconds as GiB-seconds.
#[allow(clippy::cast_precision_loss)] // 52 bits are precise enough for screens and reports
pub(crate) fn gib_seconds(byte_ms: u128) -> f64 {
    byte_ms as f64 / 1000.0 / f64::from(1 << 30)
}

/// A part of a whole, both as [`byte_time`]. The unit appears once if both have the same.
pub(crate) fn byte_time_of(part: u128, whole: u128) -> String {
    let (part, whole) = (byte_time(part), byte_time(whole));
    match (part.split_once(' '), whole.split_once(' ')) {
        (Some((figure, unit)), Some((_, other))) if unit == other => format!("{figure} of {whole}"),
        (_, _) => format!("{part} of {whole}"),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn parts_and_wholes_share_a_unit_where_possible() {
        let minutes = |n: u128| (n * 60_000) << 30;
        assert_eq!(byte_time_of(minutes(3), minutes(34)), "3.0 of 34.0 GiB·min");
        assert_eq!(
            byte_time_of(minutes(3), minutes(340)),
            "3.0 GiB·min of 5.7 GiB·h"
        );
    }

    #[test]
    fn sizes_for_columns() {
        let cases = [
            (0, "0"),
            (17, "17"),
            (64 << 10, "64K"),
            (512 << 20, "512M"),
            (3 << 30, "3G"),
            (15 << 29, "7.5G"),
        ];
        for (n, text) in cases {
            assert_eq!(short(Bytes::new(n)), text);
        }
        assert_eq!(short(Bytes::new(1_610_613)), "1.5M");
        assert_eq!(short(Bytes::new((32 << 20) + (900 << 10))), "33M");
        assert_eq!(short(Bytes::new(4_724_464_025)), "4.4G");
        assert_eq!(short(Bytes::MAX), "16777216T");
    }

    #[test]
    fn spans() {
        let cases = [
            (0, "0s"),
            (58, "58s"),
            (130, "2m10s"),
            (3720, "1h02m"),
            (532_800, "6d4h"),
        ];
        for (s, text) in cases {
            assert_eq!(span(Duration::from_secs(s)), text);
        }
        assert_eq!(
            (
                clock(Duration::from_secs(42)),
                clock(Duration::from_secs(3723))
            ),
            ("0:42".into(), "1:02:03".into())
        );
    }

    #[test]
    fn dates() {
        assert_eq!(rfc3339(UnixMillis(0)), "1970-01-01T00:00:00.000Z");
        assert_eq!(
            rfc3339(UnixMillis(951_782_400_000)),
            "2000-02-29T00:00:00.000Z"
        );
        assert_eq!(
            rfc3339(UnixMillis(1_795_257_667_250)),
            "2026-11-21T10:41:07.250Z"
        );
        assert_eq!(
            rfc3339(UnixMillis(1_767_225_599_999)),
            "2025-12-31T23:59:59.999Z"
        );
    }

    #[test]
    fn memory_times_time() {
        assert_eq!(byte_time(0), "0.0 GiB·s");
        assert_eq!(
            byte_time(u128::from(1u64 << 30) * 1000 * 204),
            "3.4 GiB·min"
        );
        assert_eq!(byte_time(u128::from(1u64 << 20) * 1000 * 7), "7 MiB·s");
    }

    #[test]
    fn shares() {
        assert_eq!(percent(Bytes::new(443), Bytes::new(750)), "59%");
        assert_eq!(percent(Bytes::new(1), Bytes::ZERO), "–");
    }
}
