//! The example of a driver runs, and finds nothing wrong.

#[path = "../../examples/own_driver/main.rs"]
mod example;

#[test]
fn it_ends_well() {
    example::main().unwrap();
}
