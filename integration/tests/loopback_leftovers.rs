//! Jobs that leave memory behind, one after another on one node: none of them costs another one anything.

#![allow(missing_docs, clippy::print_stdout)] // tests are read, not imported

use headroom_types::Bytes;
use integration::guest::Guest;
use integration::leftovers::{Bench, Case, Ends, JobShape, TaskUser};
use integration::on_host_and_in_guest;

fn guest() -> Guest {
    Guest::new().with_programs().memory(Bytes::from_mib(3800)).timeout(std::time::Duration::from_secs(280))
}

/// Together they leave 2.8 GiB on a node of 3 GiB.
fn three_jobs_leave_memory_and_the_fourth_has_all_of_its_own() {
    let bench = Bench::new(Bytes::from_mib(3072), None, TaskUser::Agent, "private_tmp = false\n").expect("a cluster");
    let mut bench = bench.shaped(JobShape { slots: 4, task: Bytes::from_mib(256) });
    let job = |program, tasks, mib| Case { program, tasks, mib, ends: Ends::Well };
    for case in [job("sysv-shm", 4, 200), job("python-shared-memory", 4, 200), job("dev-shm-file", 40, 30)] {
        let row = bench.play(&case).expect("both jobs end");
        println!("{row:?}");
        assert!(row.right && row.skipped.is_none(), "it ends well: {row:?}");
        assert_eq!((row.collateral, row.left, row.poisoned), (0, 0, false), "{row:?}");
    }
}
on_host_and_in_guest!(three_jobs, guest(), three_jobs_leave_memory_and_the_fourth_has_all_of_its_own);
