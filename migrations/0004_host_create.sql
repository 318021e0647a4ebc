CREATE TABLE host (
    host_id    text PRIMARY KEY,
    generation bigint NOT NULL,
    cordoned   boolean NOT NULL,
    doc        json NOT NULL
);

-- The outbox: the version of the desired set that the host is to converge to.
CREATE TABLE host_desired (
    host_id    text PRIMARY KEY REFERENCES host,
    generation bigint NOT NULL,
    epoch      bigint NOT NULL,
    plan_seq   bigint NOT NULL,
    changed_at bigint NOT NULL
);
