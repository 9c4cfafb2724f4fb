use super::*;

const APP: &str = "job.1";
const TOKEN: &str = "the secret of one journal";

fn owner(app: &str, submitted: u64) -> OutputOwner {
    OutputOwner { app: app.parse().expect("id"), submitted: UnixMillis(submitted) }
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
        headroom_config::job::compile(&text, "job").map_err(|p| headroom_config::render(&p)).expect("right")
    }
    /// The directory and output of attempt `n` at `map/7`.
    fn attempt(&self, n: u32) -> PathBuf {
        let dir = attempt_dir(&self.dir(), &writer(APP, TOKEN), &format!("map/7@{n}").parse().expect("id"));
        fs::create_dir_all(&dir).expect("makes");
        fs::write(dir.join("result"), format!("attempt {n}")).expect("writes");
        dir
    }
    fn commit(&self, n: u32, turn: EarlierCommit) -> Result<(), OutputError> {
        let task: TaskId = "map/7".parse().expect("id");
        let attempt = TaskAttemptId { task: task.clone(), attempt: n };
        let (from, to) = (attempt_dir(&self.dir(), &writer(APP, TOKEN), &attempt), output_path(&self.dir(), &task));
        commit(&Commit { task, from, to, turn })
    }
    fn result(&self) -> String {
        fs::read_to_string(format!("{}/map-7/result", self.dir())).expect("an output")
    }
    fn names(&self, below: &str) -> Vec<String> {
        let entries = fs::read_dir(Path::new(&self.dir()).join(below)).into_iter().flatten().flatten();
        let mut names: Vec<String> = entries.map(|e| e.file_name().to_string_lossy().into_owned()).collect();
        names.sort();
        names
    }
}

#[test]
fn committing_twice_is_once_and_takes_leftovers_away() {
    let place = OutputDirectory::new();
    (1..=3).for_each(|n| drop(place.attempt(n)));
    let beside = attempt_dir(&place.dir(), &writer(APP, TOKEN), &"map-7/1@1".parse().expect("id"));
    fs::create_dir_all(&beside).expect("makes");
    place.commit(2, EarlierCommit::First).expect("commits");
    place.commit(2, EarlierCommit::Again).expect("finds it done");
    assert_eq!((place.result().as_str(), place.names("")), ("attempt 2", vec![".headroom".to_owned(), "map-7".to_owned()]));
    assert_eq!(place.names(&format!(".headroom/{}", writer(APP, TOKEN))), ["map-7-1-1"], "that is another task's");
}

#[test]
fn a_second_commit_never_replaces_the_first() {
    let place = OutputDirectory::new();
    place.attempt(1);
    place.commit(1, EarlierCommit::First).expect("commits");
    let late = place.attempt(2);
    for turn in [EarlierCommit::First, EarlierCommit::Again] {
        let refused = place.commit(2, turn).expect_err("there is an output");
        assert!(matches!(&refused, OutputError::Taken { kept, .. } if *kept == late) && !refused.is_transient(), "{refused}");
    }
    assert_eq!(place.result(), "attempt 1");
    let empty = OutputDirectory::new();
    fs::create_dir_all(format!("{}/map-7", empty.dir())).expect("makes");
    empty.attempt(1);
    assert!(matches!(empty.commit(1, EarlierCommit::First), Err(OutputError::Taken { .. })), "not even an empty one");
}

#[test]
fn what_is_not_there_is_not_committed() {
    let place = OutputDirectory::new();
    fs::create_dir_all(place.dir()).expect("makes");
    for turn in [EarlierCommit::First, EarlierCommit::Again] {
        assert!(matches!(place.commit(1, turn), Err(OutputError::Gone(_))));
    }
    fs::create_dir_all(format!("{}/map-7", place.dir())).expect("makes");
    assert!(matches!(place.commit(1, EarlierCommit::First), Err(OutputError::Gone(_))), "what is there is not this attempt's");
}

#[test]
fn a_directory_belongs_to_one_application_until_it_is_over() {
    let place = OutputDirectory::new();
    let job = place.job();
    assert_eq!(claim(&job, &us(), JobStartState::New).expect("claims"), EarlierCommit::First);
    assert_eq!(claim(&job, &us(), JobStartState::Old).expect("the master's next run"), EarlierCommit::First);
    let other = claim(&job, &them(), JobStartState::New).expect_err("it is taken").to_string();
    assert!(other.contains("application job.1") && other.contains(&place.dir()), "{other}");
    place.attempt(1);
    place.attempt(2);
    place.commit(1, EarlierCommit::First).expect("commits");
    place.attempt(3);
    release(&job, &them());
    assert_eq!(place.names(""), [".headroom", "map-7"], "it is not theirs to give back");
    release(&job, &us());
    assert_eq!(place.names(""), ["map-7"], "only outputs stay");
    let there = claim(&job, &them(), JobStartState::New).expect_err("an output is there");
    assert!(matches!(&there, OutputError::There(path) if path.ends_with("map-7")), "{there}");
    assert_eq!(place.names(""), ["map-7"], "nothing is left of the refusal");
    fs::remove_dir_all(format!("{}/map-7", place.dir())).expect("moves away");
    claim(&job, &them(), JobStartState::New).expect("claims");
}

#[test]
fn an_application_of_the_same_name_is_another_one() {
    let place = OutputDirectory::new();
    let job = place.job();
    claim(&job, &us(), JobStartState::New).expect("claims");
    place.attempt(1);
    place.commit(1, EarlierCommit::First).expect("commits");
    place.attempt(2);
    let later = owner(APP, 1_790_000_999_999);
    let Err(OutputError::Owned { dir, owner }) = claim(&job, &later, JobStartState::New) else { panic!("it is not theirs") };
    assert_eq!((dir, owner.parse()), (place.dir().into(), Ok(us())), "who it is can be asked for");
    remove_leftovers(Path::new(&place.dir()), &later);
    assert_eq!(place.names(""), [".headroom", "map-7"], "it is not over");
    remove_leftovers(Path::new(&place.dir()), &us());
    assert_eq!(place.names(""), ["map-7"]);
    assert!(matches!(claim(&job, &later, JobStartState::New), Err(OutputError::There(_))), "its outputs are not theirs either");
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
    assert_eq!(claim(&job, &us(), JobStartState::New).expect("it is the same application"), EarlierCommit::Anew);
    assert_eq!(place.names(".headroom"), ["owner"], "attempts of the lost run are gone");
    assert_eq!(claim(&job, &us(), JobStartState::Old).expect("and its next run"), EarlierCommit::Anew);
    let rerun = place.attempt(1);
    place.commit(1, EarlierCommit::Anew).expect("the task has its output");
    place.commit(1, EarlierCommit::Anew).expect("as often as it is asked for");
    assert_eq!((place.result().as_str(), rerun.exists()), ("the first run", false));
    assert_ne!(writer(APP, TOKEN), writer(APP, "another"), "what still runs of the lost run writes elsewhere");
    release(&job, &us());
    assert_eq!(place.names(""), ["map-7"]);
}

#[test]
fn where_nobody_may_write_the_path_is_named() {
    let place = OutputDirectory::new();
    fs::write(place.dir(), "a file").expect("writes");
    let error = claim(&place.job(), &us(), JobStartState::New).expect_err("a file is in the way");
    assert!(error.is_transient() && error.to_string().contains(&place.dir()), "{error}");
}
