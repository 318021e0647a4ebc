CREATE TABLE tick (
    tick_id   bigint PRIMARY KEY,
    phase     text NOT NULL,
    epoch     bigint NOT NULL,
    opened_at bigint NOT NULL,
    closed_at bigint,
    plan_seq  bigint,
    doc       json NOT NULL
);
