CREATE TABLE plan (
    plan_seq   bigint PRIMARY KEY,
    -- A chain: nothing follows the same plan twice.
    parent     bigint NOT NULL UNIQUE,
    tick_id    bigint NOT NULL,
    created_at bigint NOT NULL,
    doc        json NOT NULL,
    CHECK (plan_seq > parent)
);
CREATE INDEX plan_tick ON plan (tick_id);

CREATE TABLE plan_action (
    plan_seq  bigint NOT NULL REFERENCES plan,
    ordinal   integer NOT NULL,
    job_id    uuid NOT NULL,
    kind      text NOT NULL,
    rationale text NOT NULL,
    PRIMARY KEY (plan_seq, ordinal)
);
CREATE INDEX plan_action_job ON plan_action (job_id, plan_seq DESC);
