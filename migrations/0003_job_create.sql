CREATE TABLE job (
    job_id       uuid PRIMARY KEY,
    name         text NOT NULL,
    tenant_id    text NOT NULL,
    class        text NOT NULL,
    state        text NOT NULL,
    submitted_at bigint NOT NULL,
    finished_at  bigint,
    version      bigint NOT NULL CHECK (version > 0),
    -- True once the job is over and holds no replica: no decision looks at it any more.
    is_history   boolean NOT NULL DEFAULT false,
    doc          json NOT NULL,
    CHECK ((state = 'finished') = (finished_at IS NOT NULL))
);
CREATE UNIQUE INDEX job_live_name ON job (name) WHERE state <> 'finished';
CREATE INDEX job_name ON job (name, submitted_at DESC);
CREATE INDEX job_finished ON job (finished_at DESC, job_id DESC) WHERE state = 'finished';
CREATE INDEX job_current ON job (job_id) WHERE NOT is_history;
