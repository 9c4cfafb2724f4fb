//! Links a program at a fixed address.
//!
//! A position-independent program of this size relocates some sixty thousand pointers whenever it
//! starts, and the kernel copies each page with one of them. `rmctl`, the application master and the
//! executor start for each job, so that time counts. Decision 58 tells what is given up.

use std::env;

fn main() {
    println!("cargo:rerun-if-changed=../build.rs");
    let target = |name: &str| env::var(format!("CARGO_CFG_TARGET_{name}")).unwrap_or_default();
    let is_static = target("FEATURE")
        .split(',')
        .any(|part| part == "crt-static");
    if target("OS") == "linux" && target("ENV") == "gnu" && !is_static {
        println!("cargo:rustc-link-arg-bins=-no-pie");
    }
}
