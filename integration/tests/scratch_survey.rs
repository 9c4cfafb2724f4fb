#![allow(missing_docs)]
use integration::world::run;
#[test]
fn survey() {
    let get = |k: &str, d: u64| std::env::var(k).ok().and_then(|v| v.parse().ok()).unwrap_or(d);
    let (from, to) = (get("FROM", 0), get("TO", 100));
    std::panic::set_hook(Box::new(|_| {}));
    let mut events = 0;
    let t = std::time::Instant::now();
    for seed in from..to {
        let o = run(seed);
        events += o.events;
        if let Some(v) = o.violation {
            let v: String = v.chars().take(420).collect();
            println!("SEED {seed} ev {} at {}ms: {v}", o.events, o.virtual_ms);
        }
    }
    println!("{} seeds {events} events {:?}", to - from, t.elapsed());
}
