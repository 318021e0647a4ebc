-- One row that every writing transaction locks: fencing token, newest plan, newest tick.
CREATE TABLE store_head (
    singleton boolean PRIMARY KEY DEFAULT true CHECK (singleton),
    epoch     bigint NOT NULL CHECK (epoch >= 0),
    plan_seq  bigint NOT NULL CHECK (plan_seq >= 0),
    tick_id   bigint
);
INSERT INTO store_head (epoch, plan_seq) VALUES (0, 0);

-- Which transactions have happened, so that an unknown outcome of COMMIT can be looked up.
CREATE TABLE applied_tx (
    tx_key       uuid PRIMARY KEY,
    payload_hash bytea NOT NULL,
    kind         text NOT NULL,
    epoch        bigint NOT NULL,
    decided_at   bigint NOT NULL
);
CREATE INDEX applied_tx_decided_at ON applied_tx (decided_at);
