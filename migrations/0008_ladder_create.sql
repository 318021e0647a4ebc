-- Every ladder that was ever committed, as it was promised.
CREATE TABLE ladder (
    job_id       uuid NOT NULL REFERENCES job,
    generation   bigint NOT NULL,
    committed_at bigint NOT NULL,
    -- Integer micro-USD per hour; absent when a host had no price.
    usd_micro_per_hour bigint,
    doc          json NOT NULL,
    PRIMARY KEY (job_id, generation)
);

CREATE TABLE rank (
    job_id        uuid NOT NULL,
    generation    bigint NOT NULL,
    rank          bigint NOT NULL,
    environment   text NOT NULL,
    instance_type text NOT NULL,
    n_replicas    bigint NOT NULL,
    mechanism_id  text,
    PRIMARY KEY (job_id, generation, rank),
    FOREIGN KEY (job_id, generation) REFERENCES ladder
);
