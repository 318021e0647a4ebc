-- Append-only: one row per source that moved beliefs, changes as parallel arrays.
CREATE TABLE belief_event (
    event_seq   bigint GENERATED ALWAYS AS IDENTITY PRIMARY KEY,
    tick_id     bigint NOT NULL,
    source      text NOT NULL CHECK (source IN ('evidence', 'forget')),
    job_id      uuid,
    rank        bigint,
    generation  bigint,
    subjects    text[] NOT NULL,
    alpha_micro bigint[] NOT NULL,
    beta_micro  bigint[] NOT NULL,
    CHECK (cardinality(subjects) = cardinality(alpha_micro)),
    CHECK (cardinality(subjects) = cardinality(beta_micro)),
    CHECK ((source = 'evidence') = (job_id IS NOT NULL AND rank IS NOT NULL AND generation IS NOT NULL))
);
-- An evidence row moves beliefs once.
CREATE UNIQUE INDEX belief_event_evidence ON belief_event (tick_id, job_id, rank) WHERE source = 'evidence';
CREATE UNIQUE INDEX belief_event_forget ON belief_event (tick_id) WHERE source = 'forget';

-- The sum of the events of each subject; the seed is the catalog's.
CREATE TABLE belief (
    subject        text PRIMARY KEY,
    alpha_micro    bigint NOT NULL,
    beta_micro     bigint NOT NULL,
    last_event_seq bigint NOT NULL
);
