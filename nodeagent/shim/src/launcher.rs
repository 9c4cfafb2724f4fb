//! `container-shim --launcher`: stays for as long as its agent, and becomes the shim of each container by a fork.
//!
//! A fork of this small process costs a fraction of an exec and of two moves between cgroups, which is what a shim of its own program costs.
//! It speaks the packets of `birth` on its standard input, reaps, and decides nothing. When the agent is gone it does what was asked of it
//! and ends; the shims stay. Its lock is the agent's: a newborn shim holds it until its directory names it, so that the next agent, which
//! waits for the lock, finds every shim there is.

use std::fs::File;
use std::path::{Path, PathBuf};
use std::process::ExitCode;

use headroom_container_shim::birth::{LONGEST, READY, Wish, Word};

use crate::{supervise, sys};

pub(crate) fn run() -> ExitCode {
    // Whoever ends the agent's session does not mean its containers.
    for signal in [libc::SIGPIPE, libc::SIGTERM, libc::SIGINT, libc::SIGHUP] {
        sys::ignore(signal);
    }
    let Ok(ended) = sys::ended_children() else { return ExitCode::FAILURE };
    if sys::send(0, READY, None).is_err() {
        return ExitCode::FAILURE;
    }
    let mut lock = None;
    loop {
        if sys::await_packet(&ended) == sys::News::Ended {
            sys::reap_all(&ended);
            continue;
        }
        let mut room = [0; LONGEST];
        let Ok((length, files)) = sys::receive(0, &mut room) else { return ExitCode::FAILURE };
        if length == 0 {
            return ExitCode::SUCCESS;
        }
        let mut files = files.into_iter();
        match (Wish::decode(room.get(..length).unwrap_or_default()), files.next(), files.next()) {
            (Some(Wish::Lock), file, _) => lock = file,
            (Some(Wish::Run(dir)), Some(conversation), Some(words)) => {
                if let Some(newborn) = give_birth(dir, conversation, words, &mut lock) {
                    drop(ended);
                    return newborn.live();
                }
            }
            // Nobody is answered: the conversation ends here.
            (Some(Wish::Run(_)), _, _) | (None, _, _) => {}
        }
    }
}

/// A shim that was just made, in its own process.
struct Newborn {
    dir: PathBuf,
    lock: Option<File>,
}

/// `None` in the launcher, which has said how it went.
fn give_birth(dir: PathBuf, conversation: File, words: File, lock: &mut Option<File>) -> Option<Newborn> {
    match sys::fork() {
        Ok(None) => {
            // 0 was the launcher's socket, whose end must be seen, and nothing else may come to be there. What cannot be put in place is
            // missed by the agent, which then takes this shim for silent.
            let placed =
                [(&conversation, 0), (&conversation, 1), (&words, 2)].into_iter().try_for_each(|(f, at)| sys::place(f, at));
            let _ = placed.and_then(|()| sys::new_session());
            Some(Newborn { dir, lock: lock.take() })
        }
        Ok(Some(pid)) => {
            // Nobody reaps it but we, later: the number is still its own.
            let pidfd = sys::pidfd(pid);
            // An agent that is gone, or hears nothing, looks into the directory.
            let _ = pidfd.and_then(|pidfd| sys::send_to(&conversation, &Word::Born.encode(), Some(&pidfd)));
            None
        }
        Err(errno) => {
            let _ = sys::send_to(&conversation, &Word::Refused { errno }.encode(), None);
            None
        }
    }
}

impl Newborn {
    fn live(self) -> ExitCode {
        sys::rename_process(&self.dir);
        supervise::run(Path::new(&self.dir), self.lock)
    }
}
