//! Placeholder: filled in by a later commit of this series.
