//! Our daemon against scale, misuse and the ways of starting it.
