-- Names of measured quantities, each once; histograms with their bucket edges.
CREATE TABLE series (
    series_id integer GENERATED ALWAYS AS IDENTITY PRIMARY KEY,
    name      text NOT NULL,
    edges     double precision[] NOT NULL DEFAULT '{}',
    UNIQUE (name, edges)
);

-- One row per window. The histograms of a window are concatenated: histogram_sizes says how many of
-- bucket_index and bucket_count belong to each. Partitioned by day of receipt, which the server
-- decides, so that no agent's clock can make partitions.
CREATE TABLE "window" (
    host_id          text NOT NULL,
    replica_id       text,
    job_id           uuid,
    start_us         bigint NOT NULL,
    end_us           bigint NOT NULL,
    length_us        bigint NOT NULL,
    received_at      bigint NOT NULL,
    n_scrapes        integer NOT NULL,
    scalar_series    integer[] NOT NULL,
    scalar_value     double precision[] NOT NULL,
    histogram_series integer[] NOT NULL,
    histogram_sum    double precision[] NOT NULL,
    histogram_count  bigint[] NOT NULL,
    histogram_sizes  integer[] NOT NULL,
    bucket_index     integer[] NOT NULL,
    bucket_count     bigint[] NOT NULL,
    flags            text[] NOT NULL
) PARTITION BY RANGE (received_at);
CREATE INDEX window_replica ON "window" (replica_id, end_us);
CREATE INDEX window_job ON "window" (job_id, end_us);
CREATE INDEX window_received ON "window" (received_at);

-- How far the spool of each agent's boot has been stored; moves in the transaction that stores.
CREATE TABLE telemetry_cursor (
    host_id    text NOT NULL,
    agent_boot text NOT NULL,
    last_seq   bigint NOT NULL,
    n_lost     bigint NOT NULL DEFAULT 0,
    updated_at bigint NOT NULL,
    PRIMARY KEY (host_id, agent_boot)
);
