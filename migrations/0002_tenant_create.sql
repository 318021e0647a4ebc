CREATE TABLE tenant (
    tenant_id text PRIMARY KEY,
    -- Share of the fleet in GPUs; absent means unlimited.
    max_gpus  bigint CHECK (max_gpus >= 0),
    doc       json NOT NULL
);
INSERT INTO tenant (tenant_id, doc) VALUES ('default', '{}');
