CREATE TABLE evidence (
    tick_id    bigint NOT NULL,
    job_id     uuid NOT NULL,
    rank       bigint NOT NULL,
    generation bigint NOT NULL,
    doc        json NOT NULL,
    PRIMARY KEY (tick_id, job_id, rank)
);
CREATE INDEX evidence_job ON evidence (job_id, tick_id DESC, rank);
