fn main() {
    warpbell_build::compile();
}
