//! Heap allocations of a piece of work, counted by the allocator of this process.
//!
//! All threads are counted together, so nothing else may run beside what is measured. The counters
//! are relaxed additions; they cost every bench a few nanoseconds an allocation.

use std::alloc::System;

use stats_alloc::{INSTRUMENTED_SYSTEM, Region, StatsAlloc};

#[global_allocator]
static ALLOCATOR: &StatsAlloc<System> = &INSTRUMENTED_SYSTEM;

/// What some work asked of the heap.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Asked {
    /// Allocations and growths.
    pub(crate) allocations: usize,
    /// Bytes asked for.
    pub(crate) bytes: usize,
}

/// The result of some work and what it asked of the heap.
pub(crate) fn counted<T>(work: impl FnOnce() -> T) -> (T, Asked) {
    let region = Region::new(ALLOCATOR);
    let result = work();
    let change = region.change();
    let asked = Asked {
        allocations: change.allocations + change.reallocations,
        bytes: change.bytes_allocated,
    };
    (result, asked)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_vector_is_seen() {
        // Other tests allocate beside this one, so only the smallest numbers are known.
        let (numbers, asked) = counted(|| vec![1_u8; 4096]);
        assert_eq!(numbers.len(), 4096);
        assert!(asked.allocations >= 1 && asked.bytes >= 4096, "{asked:?}");
    }
}
