//! A guest that stays up and runs shell scripts, one after the other or in parallel.
//!
//! The scripts and their results are files in the job directory (`guest-init`, `errands.rs`). The
//! owner decides when to cut the power.

use std::cell::{Cell, RefCell};
use std::fs;
use std::path::PathBuf;
use std::time::{Duration, Instant};

use anyhow::{Context as _, Result, bail};

use super::boot::{Booted, Glance, Watched, init_binary};
use super::{Guest, job};
use crate::cluster::ProgramOutput;

/// A running guest that accepts scripts.
pub struct ScriptGuest {
    guest: Guest,
    booted: RefCell<Booted>,
    next: Cell<u32>,
}

/// A script that was sent to a guest.
#[derive(Debug)]
pub struct GuestScript {
    at: PathBuf,
}

impl GuestScript {
    /// Its exit code and output if it has ended.
    pub fn ended(&self) -> Result<Option<ProgramOutput>> {
        let Ok(code) = fs::read_to_string(self.at.with_extension("rc")) else {
            return Ok(None);
        };
        let text = |kind| {
            fs::read(self.at.with_extension(kind))
                .map(|bytes| String::from_utf8_lossy(&bytes).into_owned())
        };
        let code = code
            .trim()
            .parse()
            .with_context(|| format!("the result of a script is {code:?}"))?;
        Ok(Some(ProgramOutput {
            code,
            stdout: text("out")?,
            stderr: text("err")?,
        }))
    }
}

impl std::fmt::Debug for ScriptGuest {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Station")
            .field("errands", &self.next.get())
            .finish_non_exhaustive()
    }
}

impl ScriptGuest {
    /// Starts a guest. The guest may still boot when this returns; scripts wait for it.
    pub fn start(guest: Guest) -> Result<Self> {
        let booted = ScriptGuest::boot(guest.clone())?;
        Ok(ScriptGuest {
            guest,
            booted: RefCell::new(booted),
            next: Cell::new(0),
        })
    }

    fn boot(guest: Guest) -> Result<Booted> {
        let init = init_binary()?;
        let (machine, task) =
            guest.prepared(&[init.as_os_str(), job::ERRANDS_ARGUMENT.as_ref()])?;
        let booted = Booted::start(&machine, &task)?;
        fs::create_dir(booted.dir().join(job::ERRANDS))?;
        Ok(booted)
    }

    /// Sends a script for `sh`.
    pub fn send(&self, script: &str) -> Result<GuestScript> {
        let at = self
            .booted
            .borrow()
            .dir()
            .join(job::ERRANDS)
            .join(self.next.get().to_string());
        self.next.set(self.next.get() + 1);
        let unfinished = at.with_extension("new");
        fs::write(&unfinished, script)?;
        fs::rename(&unfinished, &at)?;
        Ok(GuestScript { at })
    }

    /// Waits for the end of a script.
    pub fn wait(&self, script: &GuestScript, within: Duration) -> Result<ProgramOutput> {
        let mut ran = None;
        let watched = self
            .booted
            .borrow_mut()
            .watch(Instant::now() + within, |_| {
                ran = script.ended()?;
                Ok(if ran.is_some() {
                    Glance::Enough
                } else {
                    Glance::GoOn
                })
            })?;
        match (watched, ran) {
            (_, Some(ran)) => Ok(ran),
            (Watched::Ended, None) => bail!(
                "the guest has powered off; its console:\n{}",
                self.booted.borrow().console()
            ),
            (Watched::Late | Watched::Enough, None) => {
                bail!("the script did not end within {} s", within.as_secs())
            }
        }
    }

    /// Runs a script to its end.
    pub fn run(&self, script: &str, within: Duration) -> Result<ProgramOutput> {
        self.wait(&self.send(script)?, within)
    }

    /// Waits until the guest has powered off.
    pub fn until_off(&self, within: Duration) -> Result<()> {
        let mut booted = self.booted.borrow_mut();
        match booted.watch(Instant::now() + within, |_| Ok(Glance::GoOn))? {
            Watched::Ended => Ok(()),
            Watched::Late | Watched::Enough => bail!(
                "still on after {} s; its console:\n{}",
                within.as_secs(),
                booted.console()
            ),
        }
    }

    /// Cuts the power.
    pub fn cut(&self) {
        self.booted.borrow_mut().kill();
    }

    /// Boots it again on the same disk. Earlier scripts have no result any more.
    pub fn start_again(&self) -> Result<()> {
        self.cut();
        *self.booted.borrow_mut() = ScriptGuest::boot(self.guest.clone())?;
        self.next.set(0);
        Ok(())
    }

    /// The last lines of the kernel's console.
    pub fn console(&self) -> String {
        self.booted.borrow().console()
    }
}
