//! What a task of a kind will need, from the size of its input: four simple ways, each fitted to the last tasks that were seen.

/// One finished task.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Point {
    /// Size of its input; 0 where it is not known. Bytes.
    pub input: f64,
    /// What it needed. Bytes.
    pub need: f64,
    /// How long it ran. Seconds.
    pub runtime: f64,
}

/// A way to predict.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Way {
    /// The median of all, whatever the input.
    Median,
    /// A line through input and need.
    Linear,
    /// A line through their logarithms.
    LogLog,
    /// The largest of the five tasks whose inputs are nearest.
    Nearest,
}

/// All ways.
pub const WAYS: [Way; 4] = [Way::Median, Way::Linear, Way::LogLog, Way::Nearest];
/// Neighbours that are looked at.
const NEIGHBOURS: usize = 5;

/// The lines through the last tasks.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub struct Fit {
    median: f64,
    least: f64,
    most: f64,
    linear: Option<(f64, f64)>,
    loglog: Option<(f64, f64)>,
}

impl Fit {
    /// Fits all ways. `None` where there is nothing to fit.
    pub fn of(points: &[Point]) -> Option<Fit> {
        let mut needs: Vec<f64> = points.iter().map(|p| p.need).collect();
        needs.sort_by(f64::total_cmp);
        let (least, most) = (needs.first().copied()?, needs.last().copied()?);
        let median = needs.get(needs.len() / 2).copied()?;
        let known = || points.iter().filter(|p| p.input > 0.0);
        Some(Fit {
            median,
            least,
            most,
            linear: line(known().map(|p| (p.input, p.need))),
            loglog: line(known().filter(|p| p.need > 0.0).map(|p| (p.input.ln(), p.need.ln()))),
        })
    }

    /// What a task with this input will need. Bytes; `None` where this way cannot tell.
    pub fn predict(&self, way: Way, input: f64, points: &[Point]) -> Option<f64> {
        let raw = match way {
            Way::Median => self.median,
            Way::Linear => self.linear.filter(|_| input > 0.0).map(|(a, b)| a + b * input)?,
            Way::LogLog => self.loglog.filter(|_| input > 0.0).map(|(a, b)| (a + b * input.ln()).exp())?,
            Way::Nearest => nearest(input, points)?,
        };
        // Nobody knows what lies far beyond what was seen.
        Some(raw.clamp(self.least * 0.5, self.most * 8.0)).filter(|need| *need > 0.0)
    }
}

fn nearest(input: f64, points: &[Point]) -> Option<f64> {
    if input <= 0.0 {
        return None;
    }
    let mut near: [(f64, f64); NEIGHBOURS] = [(f64::INFINITY, 0.0); NEIGHBOURS];
    for point in points.iter().filter(|p| p.input > 0.0) {
        let mut one = ((point.input - input).abs(), point.need);
        for place in &mut near {
            if one.0 < place.0 {
                std::mem::swap(place, &mut one);
            }
        }
    }
    let most = near.iter().filter(|(far, _)| far.is_finite()).map(|(_, need)| *need).fold(0.0, f64::max);
    (most > 0.0).then_some(most)
}

/// Least squares: where the line begins and how steep it is. Needs two different places.
fn line(points: impl Iterator<Item = (f64, f64)> + Clone) -> Option<(f64, f64)> {
    let (n, sx, sy) = points.clone().fold((0.0, 0.0, 0.0), |(n, sx, sy), (x, y)| (n + 1.0, sx + x, sy + y));
    if n < 3.0 {
        return None;
    }
    let (mx, my) = (sx / n, sy / n);
    let (sxx, sxy) = points.fold((0.0, 0.0), |(sxx, sxy), (x, y)| (sxx + (x - mx) * (x - mx), sxy + (x - mx) * (y - my)));
    if sxx <= f64::EPSILON * mx.abs().max(1.0) {
        return None;
    }
    let slope = sxy / sxx;
    Some((my - slope * mx, slope))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn points(of: impl Fn(f64) -> f64) -> Vec<Point> {
        (1..50).map(|n| Point { input: f64::from(n) * 1e6, need: of(f64::from(n) * 1e6), runtime: 1.0 }).collect()
    }
    fn near(a: Option<f64>, b: f64) -> bool {
        a.is_some_and(|a| (a / b - 1.0).abs() < 0.01)
    }

    #[test]
    fn a_line_is_found() {
        let seen = points(|x| 5e7 + 3.0 * x);
        let fit = Fit::of(&seen).expect("points");
        assert!(near(fit.predict(Way::Linear, 7e7, &seen), 5e7 + 21e7));
    }

    #[test]
    fn a_power_is_found() {
        let seen = points(|x| 2.0 * x.powf(1.2));
        let fit = Fit::of(&seen).expect("points");
        assert!(near(fit.predict(Way::LogLog, 6e7, &seen), 2.0 * 6e7_f64.powf(1.2)));
    }

    #[test]
    fn the_nearest_give_their_largest() {
        let seen = points(|x| x);
        let fit = Fit::of(&seen).expect("points");
        assert!(near(fit.predict(Way::Nearest, 20.2e6, &seen), 22e6));
    }

    #[test]
    fn without_an_input_only_the_median_speaks() {
        let seen = points(|x| x);
        let fit = Fit::of(&seen).expect("points");
        assert!(fit.predict(Way::Median, 0.0, &seen).is_some());
        for way in [Way::Linear, Way::LogLog, Way::Nearest] {
            assert_eq!(fit.predict(way, 0.0, &seen), None);
        }
    }

    #[test]
    fn one_place_makes_no_line() {
        let seen: Vec<Point> = (0..10).map(|_| Point { input: 5.0, need: 7.0, runtime: 1.0 }).collect();
        let fit = Fit::of(&seen).expect("points");
        assert_eq!(fit.predict(Way::Linear, 9.0, &seen), None);
        assert_eq!(Fit::of(&[]), None);
    }
}
