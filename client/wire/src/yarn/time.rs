//! Timestamps as text: `2026-11-21T10:41:07.250+0000`.

use headroom_types::UnixMillis;

const DAY: u64 = 86_400_000;

/// Formats a time in the form of YARN.
pub fn format_timestamp(time: UnixMillis) -> String {
    let (year, month, day) = civil(time.0 / DAY);
    let ms = time.0 % DAY;
    let (h, m, s) = (ms / 3_600_000, ms / 60_000 % 60, ms / 1000 % 60);
    format!(
        "{year:04}-{month:02}-{day:02}T{h:02}:{m:02}:{s:02}.{:03}+0000",
        ms % 1000
    )
}

/// Parses a timestamp with or without fractional seconds, and with `Z` or an offset in hours and
/// minutes. `None` for any other text, and for times before 1970.
pub fn parse_timestamp(text: &str) -> Option<UnixMillis> {
    let (date, rest) = text.split_once('T')?;
    let mut date = date.splitn(3, '-').map(number);
    let (year, month, day) = (date.next()??, date.next()??, date.next()??);
    let zone = rest.find(['Z', '+', '-'])?;
    let (clock, zone) = rest.split_at(zone);
    let (clock, fraction) = clock.split_once('.').unwrap_or((clock, "0"));
    let mut clock = clock.splitn(3, ':').map(number);
    let (h, m, s) = (clock.next()??, clock.next()??, clock.next()??);
    let inside = (1970..=9999).contains(&year)
        && (1..=12).contains(&month)
        && (1..=31).contains(&day)
        && h < 24
        && m < 60
        && s < 60;
    if !inside || fraction.is_empty() || !fraction.bytes().all(|b| b.is_ascii_digit()) {
        return None;
    }
    let ms = number(&format!("{fraction:0<3}")[..3])?;
    let local = days(year, month, day)? * DAY + ((h * 60 + m) * 60 + s) * 1000 + ms;
    shifted(local, zone).map(UnixMillis)
}

fn shifted(local: u64, zone: &str) -> Option<u64> {
    let (sign, digits) = zone.split_at(1);
    let digits = digits.replace(':', "");
    if sign == "Z" {
        return digits.is_empty().then_some(local);
    }
    let digits = (digits.len() == 4).then(|| number(&digits))??;
    let minutes = digits / 100 * 60 + digits % 100;
    if sign == "+" {
        local.checked_sub(minutes * 60_000)
    } else {
        local.checked_add(minutes * 60_000)
    }
}

fn number(text: &str) -> Option<u64> {
    (!text.is_empty() && text.len() <= 4 && text.bytes().all(|b| b.is_ascii_digit()))
        .then(|| text.parse().ok())?
}

/// Converts days since 1970-01-01 to a Gregorian date. Internally the year begins in March, so that
/// a leap day is its last day.
fn civil(days: u64) -> (u64, u64, u64) {
    let days = days + 719_468;
    let (era, day_of_era) = (days / 146_097, days % 146_097);
    let year_of_era =
        (day_of_era - day_of_era / 1460 + day_of_era / 36_524 - day_of_era / 146_096) / 365;
    let day_of_year = day_of_era - (365 * year_of_era + year_of_era / 4 - year_of_era / 100);
    let from_march = (5 * day_of_year + 2) / 153;
    let month = if from_march < 10 {
        from_march + 3
    } else {
        from_march - 9
    };
    (
        era * 400 + year_of_era + u64::from(month <= 2),
        month,
        day_of_year - (153 * from_march + 2) / 5 + 1,
    )
}

/// Converts a Gregorian date to days since 1970-01-01. `None` for a day that the month does not
/// have.
fn days(year: u64, month: u64, day: u64) -> Option<u64> {
    let from_march = (month + 9) % 12;
    let year_from_march = year - u64::from(month <= 2);
    let (era, year_of_era) = (year_from_march / 400, year_from_march % 400);
    let day_of_era =
        year_of_era * 365 + year_of_era / 4 - year_of_era / 100 + (153 * from_march + 2) / 5 + day
            - 1;
    let days = (era * 146_097 + day_of_era).checked_sub(719_468)?;
    (civil(days) == (year, month, day)).then_some(days)
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    #[test]
    fn known_times_are_formatted_and_parsed() {
        assert_eq!(
            format_timestamp(UnixMillis(0)),
            "1970-01-01T00:00:00.000+0000"
        );
        assert_eq!(
            format_timestamp(UnixMillis(1_795_257_667_250)),
            "2026-11-21T10:41:07.250+0000"
        );
        assert_eq!(
            parse_timestamp("2000-02-29T01:00:00+01:00"),
            Some(UnixMillis(951_782_400_000))
        );
        assert_eq!(
            parse_timestamp("2000-02-28T23:00:00.5-0100"),
            Some(UnixMillis(951_782_400_500))
        );
        for text in [
            "2001-02-29T00:00:00Z",
            "2000-13-01T00:00:00Z",
            "2000-01-01",
            "UNLIMITED",
            "2000-01-01T00:00:00",
            "1970-01-01T00:00:00+0100",
            "2000-01-01T00:00:00+aéb",
        ] {
            assert_eq!(parse_timestamp(text), None, "{text}");
        }
    }

    proptest! {
        /// A formatted time parses to the same time.
        #[test]
        fn times_round_trip(ms in 0u64..253_402_300_799_999) {
            prop_assert_eq!(parse_timestamp(&format_timestamp(UnixMillis(ms))), Some(UnixMillis(ms)));
        }

        /// Parsing never panics, for any text.
        #[test]
        fn no_text_panics(text in "\\PC{0,40}") {
            let _ = parse_timestamp(&text);
        }
    }
}
