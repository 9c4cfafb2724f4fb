//! Words of sentences: suggestions for misspelled names, whose cost is bounded by the lengths of
//! the two words, and counts with their noun.

/// A count with its noun in the right number: `1 container`, `2 containers`. For nouns whose plural
/// only adds an `s`.
pub fn counted_noun(count: usize, noun: &str) -> String {
    let ending = if count == 1 { "" } else { "s" };
    format!("{count} {noun}{ending}")
}

/// The candidate that is most similar to the written name.
pub fn closest_name<'c>(written: &str, candidates: &[&'c str]) -> Option<&'c str> {
    let plain = |t: &str| t.to_ascii_lowercase().replace(['-', ' '], "_");
    let most = (written.len() / 3).clamp(1, 3);
    let written = plain(written);
    // Words of very different lengths cannot match, so their distance is not computed.
    let near = candidates
        .iter()
        .filter(|c| c.len().abs_diff(written.len()) <= 4 * most);
    let scored = near.map(|c| (edit_distance(&written, &plain(c)), *c));
    scored.filter(|(d, _)| *d <= most).min().map(|(_, c)| c)
}

/// Edit distance between two words; a swap of two adjacent characters counts as one edit.
fn edit_distance(a: &str, b: &str) -> usize {
    let (a, b): (Vec<char>, Vec<char>) = (a.chars().collect(), b.chars().collect());
    let mut rows: Vec<Vec<usize>> = vec![(0..=b.len()).collect()];
    for i in 1..=a.len() {
        let mut row = vec![i];
        for j in 1..=b.len() {
            let differ = usize::from(a[i - 1] != b[j - 1]);
            let mut best = (rows[i - 1][j] + 1)
                .min(row[j - 1] + 1)
                .min(rows[i - 1][j - 1] + differ);
            if i > 1 && j > 1 && a[i - 1] == b[j - 2] && a[i - 2] == b[j - 1] {
                best = best.min(rows[i - 2][j - 2] + 1);
            }
            row.push(best);
        }
        rows.push(row);
    }
    rows[a.len()][b.len()]
}

/// A suggestion for users: `did you mean "map"?`. `None` when no candidate is similar.
pub fn did_you_mean<C: AsRef<str>>(
    written: &str,
    candidates: impl IntoIterator<Item = C>,
) -> Option<String> {
    let all: Vec<C> = candidates.into_iter().collect();
    let all: Vec<&str> = all.iter().map(AsRef::as_ref).collect();
    closest_name(written, &all).map(|near| format!("did you mean {near:?}?"))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_count_has_the_number_of_its_noun() {
        let of = |count| counted_noun(count, "container");
        assert_eq!(
            [of(0), of(1), of(2)],
            ["0 containers", "1 container", "2 containers"]
        );
    }

    #[test]
    fn similar_names_are_suggested_and_others_are_not() {
        assert_eq!(
            did_you_mean("wordcont.7", ["sort.3", "wordcount.7"]),
            Some("did you mean \"wordcount.7\"?".into())
        );
        assert_eq!(
            did_you_mean("worker-10", ["worker-01", "other"]),
            Some("did you mean \"worker-01\"?".into())
        );
        assert_eq!(did_you_mean("etl", ["adhoc", "default"]), None);
        assert_eq!(did_you_mean("etl", Vec::<String>::new()), None);
    }
}
