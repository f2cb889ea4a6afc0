//! Part of Warpbell.
