//! Answers JSON lines from standard input, see `dra_cel::wire`.

use std::io::{BufRead, Write};

fn main() -> std::io::Result<()> {
    let compiler = dra_cel::Compiler::new();
    let mut out = std::io::stdout().lock();
    for line in std::io::stdin().lock().lines() {
        let line = line?;
        if !line.trim().is_empty() {
            writeln!(out, "{}", dra_cel::wire::answer_line(&compiler, &line))?;
        }
    }
    Ok(())
}
