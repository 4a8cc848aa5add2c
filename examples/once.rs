//! Runs one configuration from the command line and prints its totals: `cargo run --release --example once '{…}'`.
fn main() {
    let config = std::env::args().nth(1).expect("a configuration as JSON");
    let config = serde_json::from_str(&config).expect("JSON");
    match slablab::run::run(&config, &slablab::run::Cancel::default()) {
        Ok(outcome) => {
            println!("{}\n{:?}", serde_json::to_string_pretty(&outcome.summary).expect("plain data"), outcome.host)
        }
        Err(e) => println!("{e:?}"),
    }
}
