-- Measured points that correct the surrogate.
CREATE TABLE perf_row (
    perf_id       bigint GENERATED ALWAYS AS IDENTITY PRIMARY KEY,
    environment   text NOT NULL,
    instance_type text NOT NULL,
    model_id      text NOT NULL,
    recorded_at   bigint NOT NULL,
    doc           json NOT NULL
);
CREATE INDEX perf_row_key ON perf_row (model_id, environment, recorded_at DESC);
