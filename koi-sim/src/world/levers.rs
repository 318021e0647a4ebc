//! Where a hidden effect takes hold: factors on parts of the physics, 1 or 0 where nothing is hidden.

/// What a hidden effect, or a new engine version, does to a chain.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Levers {
    /// Factor on the time of a step.
    pub step: f64,
    /// Factor on the part of a step that generates tokens.
    pub decode: f64,
    /// Factor on the part of a step that computes prompts.
    pub prefill: f64,
    /// Factor on waiting.
    pub wait: f64,
    /// Added to the share of prompt tokens that the cache answers.
    pub hit: f64,
    /// Factor on the blocks of the KV pool.
    pub pool: f64,
    /// Factor on what the devices send each other.
    pub link: f64,
    /// Factor on the device's measured arithmetic activity.
    pub activity: f64,
    /// Factor on the device's measured memory traffic.
    pub traffic: f64,
    /// Factor on the running requests beyond those that the load asks for.
    pub live: f64,
}

impl Default for Levers {
    /// Nothing hidden.
    fn default() -> Self {
        Self {
            step: 1.0,
            decode: 1.0,
            prefill: 1.0,
            wait: 1.0,
            hit: 0.0,
            pool: 1.0,
            link: 1.0,
            activity: 1.0,
            traffic: 1.0,
            live: 1.0,
        }
    }
}
