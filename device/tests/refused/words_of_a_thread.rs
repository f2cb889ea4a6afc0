use warpbell::{Stop, Word64, thread};

fn main() {
    let word = Word64::new(0);
    let _ = Stop::new(&word);
    let _ = thread::compare_exchange(&word, 0, 1);
}
