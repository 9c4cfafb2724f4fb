//! Sentences about the location of inputs, and the bytes that tasks read.

use headroom_wire::v1::job::{AttemptInput, DataLocality, InputGap, StageInputs};

use super::count;

/// The input of one attempt as a sentence.
pub(crate) fn of_attempt(input: &AttemptInput) -> String {
    let read = match (input.planned, input.read) {
        (Some(planned), Some(read)) => format!("{planned} planned, {read} read"),
        (Some(planned), None) => format!("{planned} planned"),
        (None, Some(read)) => format!("{read} read, nothing planned"),
        (None, None) => "its size is not known".to_owned(),
    };
    let place = match input.locality {
        None => "",
        Some(DataLocality::Local) => "; on its own node",
        Some(DataLocality::Remote) => "; from other hosts over the network",
    };
    let gap = match input.gap {
        None => "",
        Some(InputGap::More) => "; far more than planned: check how the input is split",
        Some(InputGap::Less) => {
            "; far less than planned: it skipped a part, or read through mapped files, which are not counted"
        }
    };
    format!("{read}{place}{gap}")
}

/// A line for each stage with input statistics.
pub(crate) fn of_stages(stages: &[StageInputs]) -> String {
    stages.iter().map(of_stage).collect()
}

fn of_stage(s: &StageInputs) -> String {
    let mut parts = Vec::new();
    if s.attempts > 0 {
        parts.push(format!(
            "{} of {} remote, of {} {} remote",
            s.remote,
            count(s.attempts, "attempt"),
            count(s.kills, "kill"),
            s.remote_kills
        ));
    }
    if s.more + s.less > 0 {
        parts.push(format!(
            "{} read far more than planned, {} far less",
            s.more, s.less
        ));
    }
    if parts.is_empty() {
        String::new()
    } else {
        format!("input   {}: {}\n", s.stage, parts.join("; "))
    }
}

/// A sentence for each stage in which most kills hit attempts with a remote input.
pub(crate) fn remote_kills(stages: &[StageInputs]) -> String {
    let one = |s: &StageInputs| {
        format!(
            "cause   most kills of {} hit attempts with remote input: {} of {}, while {} of {} had remote input → \
             smaller partitions, blocks fetched to disk (spark.maxRemoteBlockSizeFetchToMem), or a longer wait for a local node\n",
            s.stage,
            s.remote_kills,
            s.kills,
            s.remote,
            count(s.attempts, "attempt"),
        )
    };
    stages
        .iter()
        .filter(|s| s.mostly_remote_kills())
        .map(one)
        .collect()
}

#[cfg(test)]
mod tests {
    use super::*;
    use headroom_types::Bytes;

    fn stage() -> StageInputs {
        StageInputs {
            attempts: 40,
            remote: 6,
            kills: 5,
            remote_kills: 4,
            more: 1,
            ..StageInputs::new("map".parse().expect("a name"))
        }
    }

    #[test]
    fn a_stage_is_shown_with_the_common_cause_of_its_kills() {
        let text = of_stages(&[stage()]);
        assert_eq!(
            text,
            "input   map: 6 of 40 attempts remote, of 5 kills 4 remote; 1 read far more than planned, 0 far less\n"
        );
        assert!(remote_kills(&[stage()]).contains("4 of 5, while 6 of 40 attempts"));
        let few = StageInputs {
            kills: 2,
            remote_kills: 2,
            ..stage()
        };
        let mixed = StageInputs {
            remote_kills: 2,
            ..stage()
        };
        assert_eq!(
            remote_kills(&[few, mixed]),
            "",
            "two kills prove nothing, and neither do fewer than half"
        );
        assert_eq!(
            of_stages(&[StageInputs::new("map".parse().expect("a name"))]),
            ""
        );
    }

    #[test]
    fn an_attempt_shows_the_size_and_place_of_its_input() {
        let input = AttemptInput {
            planned: Some(Bytes::from_mib(64)),
            read: Some(Bytes::from_mib(512)),
            locality: Some(DataLocality::Remote),
            gap: Some(InputGap::More),
        };
        let text = of_attempt(&input);
        assert!(
            text.starts_with(
                "64 MiB planned, 512 MiB read; from other hosts over the network; far more"
            ),
            "{text}"
        );
        assert_eq!(
            of_attempt(&AttemptInput::default()),
            "its size is not known"
        );
    }
}
