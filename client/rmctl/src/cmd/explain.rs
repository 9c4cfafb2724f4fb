//! `rmctl explain`: the meaning of codes, verdicts, exit codes, fields of the interface and keys of
//! files. Needs no daemon.

use crate::context::CommandContext;
use crate::exit::{CommandFailure, CommandResult};
use crate::explain::{self, WordExplanation};
use crate::render::json::MachineOutput;
use crate::render::table::{Table, wrap};

/// Prints the meaning of a word, or all words without one.
pub(crate) fn run(context: &CommandContext, word: Option<&str>) -> CommandResult {
    let all = explain::entries();
    let Some(word) = word else {
        let short: Vec<WordExplanation> = all.into_iter().filter(|e| !e.is_detail()).collect();
        let text = MachineOutput::list(&short).text(&context.output, |e| e.word.clone());
        return Ok(context.show(text, || list(&short, context.term.width)));
    };
    let found = explain::find(&all, word);
    if found.is_empty() {
        let failure = CommandFailure::not_found(format!(
            "{word:?} is not a known code, verdict, event, field or key"
        ));
        let failure = failure.near(word, all.iter().map(|e| e.word.as_str()));
        return Err(failure.help(
            "rmctl explain lists codes and verdicts; fields are written AppView.until, keys retry.cap or scheduling.preempt_part",
        ));
    }
    let text = MachineOutput::list(&found).text(&context.output, |e| e.word.clone());
    Ok(context.show(text, || {
        found
            .iter()
            .map(|e| one(e, context))
            .collect::<Vec<_>>()
            .join("\n")
    }))
}

fn list(all: &[WordExplanation], width: usize) -> String {
    let mut table = Table::new(&["WORD", "KIND", "MEANS"]);
    for entry in all {
        let room = width.saturating_sub(38).max(20);
        table.row([
            entry.word.clone(),
            entry.kind.to_owned(),
            crate::render::table::cut(&entry.means, room),
        ]);
    }
    table.text()
        + "next: rmctl explain HR0422 · rmctl explain retry.cap · rmctl explain Escalated · rmctl explain AppView.until\n"
}

fn one(entry: &WordExplanation, context: &CommandContext) -> String {
    let paint = context.term.paint;
    let mut text = format!("{}  {}\n", paint.strong(&entry.word), entry.kind);
    let lines = std::iter::once(&entry.means).chain(&entry.more);
    for line in lines.flat_map(|l| wrap(l, context.term.width.min(98))) {
        text.push_str(&format!("  {line}\n"));
    }
    if let Some(see) = &entry.see {
        text.push_str(&format!("{}\n", paint.dim(&format!("next: {see}"))));
    }
    text
}
