//! Wire and domain, one file per noun.
