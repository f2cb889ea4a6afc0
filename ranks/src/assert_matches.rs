//! An assertion of the tests.

/// Fails the test unless a value has a shape, and shows the value.
macro_rules! assert_matches {
    ($value:expr => $($shape:tt)+) => {{
        let value = $value;
        let shown = format!("{value:?}");
        assert!(matches!(value, $($shape)+), "{shown} is not {}", stringify!($($shape)+));
    }};
}
