use warpbell::kernel;

#[derive(Clone, Copy)]
struct Parameters;

impl Parameters {
    #[kernel]
    fn by_value(self) {}

    #[kernel]
    fn by_reference(&self) {}
}

fn main() {}
