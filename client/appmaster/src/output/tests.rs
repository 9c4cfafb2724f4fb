use super::*;

const APP: &str = "job.1";
const TOKEN: &str = "the secret of one journal";

fn owner(app: &str, submitted: u64) -> OutputOwner {
    OutputOwner {
        app: app.parse().expect("id"),
        submitted: UnixMillis(submitted),
    }
}
fn us() -> OutputOwner {
    owner(APP, 1_790_000_000_000)
}
fn them() -> OutputOwner {
    owner("job.2", 1_790_000_000_500)
}

struct OutputDirectory(tempfile::TempDir);

impl OutputDirectory {
    fn new() -> OutputDirectory {
        OutputDirectory(tempfile::tempdir().expect("a directory"))
    }
    fn dir(&self) -> String {
        self.0.path().join("out").display().to_string()
    }
    fn job(&self) -> JobSpec {
        let text = format!(
            "version = 1\nname = \"job\"\n[profiles.exec]\nmemory = \"288MiB\"\n[executors.main]\nprofile = \"exec\"\n\
             [[stage]]\nname = \"map\"\ncount = 9\ncommand = [\"p\"]\nidempotent = \"fenced\"\noutput = \"{}\"\n",
            self.dir()
        );
        headroom_config::job::compile(&text, "job")
            .map_err(|p| headroom_config::render(&p))
            .expect("right")
    }
    /// The directory and output of attempt `n` at `map/7`.
    fn attempt(&self, n: u32) -> PathBuf {
        let dir = attempt_dir(
            &self.dir(),
            &writer(APP, TOKEN),
            &format!("map/7@{n}").parse().expect("id"),
        );
        fs::create_dir_all(&dir).expect("makes");
        fs::write(dir.join("result"), format!("attempt {n}")).expect("writes");
        dir
    }
    fn commit(&self, n: u32, turn: EarlierCommit) -> Result<(), OutputError> {
        let task: TaskId = "map/7".parse().expect("id");
        let attempt = TaskAttemptId {
            task: task.clone(),
            attempt: n,
        };
        let (from, to) = (
            attempt_dir(&self.dir(), &writer(APP, TOKEN), &attempt),
            output_path(&self.dir(), &task),
        );
        commit(&OutputCommit {
            task,
            from,
            to,
            turn,
        })
    }
    fn result(&self) -> String {
        fs::read_to_string(format!("{}/map-7/result", self.dir())).expect("an output")
    }
    fn names(&self, below: &str) -> Vec<String> {
        let entries = fs::read_dir(Path::new(&self.dir()).join(below))
            .into_iter()
            .flatten()
            .flatten();
        let mut names: Vec<String> = entries
            .map(|e| e.file_name().to_string_lossy().into_owned())
            .collect();
        names.sort();
        names
    }
}

#[test]
fn a_repeated_commit_has_no_effect_and_removes_leftovers() {
    let place = OutputDirectory::new();
    (1..=3).for_each(|n| drop(place.attempt(n)));
    let beside = attempt_dir(
        &place.dir(),
        &writer(APP, TOKEN),
        &"map-7/1@1".parse().expect("id"),
    );
    fs::create_dir_all(&beside).expect("makes");
    place.commit(2, EarlierCommit::First).expect("commits");
    place
        .commit(2, EarlierCommit::Again)
        .expect("finds the commit done");
    assert_eq!(
        (place.result().as_str(), place.names("")),
        (
            "attempt 2",
            vec![".headroom".to_owned(), "map-7".to_owned()]
        )
    );
    assert_eq!(
        place.names(&format!(".headroom/{}", writer(APP, TOKEN))),
        ["map-7-1-1"],
        "the directory belongs to another task"
    );
}

#[test]
fn a_second_commit_never_replaces_the_first() {
    let place = OutputDirectory::new();
    place.attempt(1);
    place.commit(1, EarlierCommit::First).expect("commits");
    let late = place.attempt(2);
    for turn in [EarlierCommit::First, EarlierCommit::Again] {
        let refused = place.commit(2, turn).expect_err("the output exists");
        assert!(
            matches!(&refused, OutputError::Taken { kept, .. } if *kept == late)
                && !refused.is_transient(),
            "{refused}"
        );
    }
    assert_eq!(place.result(), "attempt 1");
    let empty = OutputDirectory::new();
    fs::create_dir_all(format!("{}/map-7", empty.dir())).expect("makes");
    empty.attempt(1);
    assert!(
        matches!(
            empty.commit(1, EarlierCommit::First),
            Err(OutputError::Taken { .. })
        ),
        "an empty directory is kept too"
    );
}

#[test]
fn a_missing_attempt_directory_is_not_committed() {
    let place = OutputDirectory::new();
    fs::create_dir_all(place.dir()).expect("makes");
    for turn in [EarlierCommit::First, EarlierCommit::Again] {
        assert!(matches!(place.commit(1, turn), Err(OutputError::Gone(_))));
    }
    fs::create_dir_all(format!("{}/map-7", place.dir())).expect("makes");
    assert!(
        matches!(
            place.commit(1, EarlierCommit::First),
            Err(OutputError::Gone(_))
        ),
        "the output is of another attempt"
    );
}

#[test]
fn a_directory_belongs_to_one_application_until_its_end() {
    let place = OutputDirectory::new();
    let job = place.job();
    assert_eq!(
        claim(&job, &us(), JobStartState::New).expect("claims"),
        EarlierCommit::First
    );
    assert_eq!(
        claim(&job, &us(), JobStartState::Old).expect("the next run of the master claims it"),
        EarlierCommit::First
    );
    let other = claim(&job, &them(), JobStartState::New)
        .expect_err("the directory has an owner")
        .to_string();
    assert!(
        other.contains("application job.1") && other.contains(&place.dir()),
        "{other}"
    );
    place.attempt(1);
    place.attempt(2);
    place.commit(1, EarlierCommit::First).expect("commits");
    place.attempt(3);
    release(&job, &them());
    assert_eq!(
        place.names(""),
        [".headroom", "map-7"],
        "only the owner can release the directory"
    );
    release(&job, &us());
    assert_eq!(place.names(""), ["map-7"], "only outputs remain");
    let there = claim(&job, &them(), JobStartState::New).expect_err("an output exists");
    assert!(
        matches!(&there, OutputError::There(path) if path.ends_with("map-7")),
        "{there}"
    );
    assert_eq!(
        place.names(""),
        ["map-7"],
        "a refused claim leaves no files"
    );
    fs::remove_dir_all(format!("{}/map-7", place.dir())).expect("moves the output away");
    claim(&job, &them(), JobStartState::New).expect("claims");
}

#[test]
fn a_later_application_of_the_same_name_is_another_owner() {
    let place = OutputDirectory::new();
    let job = place.job();
    claim(&job, &us(), JobStartState::New).expect("claims");
    place.attempt(1);
    place.commit(1, EarlierCommit::First).expect("commits");
    place.attempt(2);
    let later = owner(APP, 1_790_000_999_999);
    let Err(OutputError::Owned { dir, owner }) = claim(&job, &later, JobStartState::New) else {
        panic!("has another owner")
    };
    assert_eq!(
        (dir, owner.parse()),
        (place.dir().into(), Ok(us())),
        "the owner can be looked up"
    );
    remove_leftovers(Path::new(&place.dir()), &later);
    assert_eq!(
        place.names(""),
        [".headroom", "map-7"],
        "the owner has not ended"
    );
    remove_leftovers(Path::new(&place.dir()), &us());
    assert_eq!(place.names(""), ["map-7"]);
    assert!(
        matches!(
            claim(&job, &later, JobStartState::New),
            Err(OutputError::There(_))
        ),
        "its outputs have another owner"
    );
    for text in ["", "job.1", "job.1 x", "job 1", "job.1 1 anew"] {
        assert_eq!(text.parse::<OutputOwner>(), Err(()), "{text:?}");
    }
}

#[test]
fn a_master_that_has_lost_its_journal_keeps_the_outputs_that_are_there() {
    let place = OutputDirectory::new();
    let job = place.job();
    claim(&job, &us(), JobStartState::New).expect("claims");
    fs::write(place.attempt(1).join("result"), "the first run").expect("writes");
    place.commit(1, EarlierCommit::First).expect("commits");
    place.attempt(2);
    assert_eq!(
        claim(&job, &us(), JobStartState::New).expect("it is the same application"),
        EarlierCommit::Anew
    );
    assert_eq!(
        place.names(".headroom"),
        ["owner"],
        "attempts of the lost run are removed"
    );
    assert_eq!(
        claim(&job, &us(), JobStartState::Old).expect("the next run claims the directory"),
        EarlierCommit::Anew
    );
    let rerun = place.attempt(1);
    place
        .commit(1, EarlierCommit::Anew)
        .expect("the task has its output");
    place
        .commit(1, EarlierCommit::Anew)
        .expect("a repeated commit succeeds");
    assert_eq!(
        (place.result().as_str(), rerun.exists()),
        ("the first run", false)
    );
    assert_ne!(
        writer(APP, TOKEN),
        writer(APP, "another"),
        "attempts of the lost run write to another directory"
    );
    release(&job, &us());
    assert_eq!(place.names(""), ["map-7"]);
}

#[test]
fn an_unwritable_path_is_named_in_the_error() {
    let place = OutputDirectory::new();
    fs::write(place.dir(), "a file").expect("writes");
    let error = claim(&place.job(), &us(), JobStartState::New).expect_err("a file is in the way");
    assert!(
        error.is_transient() && error.to_string().contains(&place.dir()),
        "{error}"
    );
}
