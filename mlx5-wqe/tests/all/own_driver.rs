//! The example of a driver runs, and finds nothing wrong.

#[path = "../../examples/own_driver/main.rs"]
mod own_driver;

#[test]
fn it_ends_well() {
    own_driver::main().unwrap();
}
