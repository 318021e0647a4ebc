-- A row exists until its processes are proven gone.
CREATE TABLE replica (
    replica_id text PRIMARY KEY,
    job_id     uuid NOT NULL REFERENCES job,
    host_id    text NOT NULL,
    role       text NOT NULL,
    phase      text NOT NULL,
    gpu_uuids  text[] NOT NULL,
    doc        json NOT NULL
);
CREATE INDEX replica_job ON replica (job_id);
CREATE INDEX replica_host ON replica (host_id);

-- The primary key is the rule that no device serves two replicas.
CREATE TABLE gpu_reservation (
    gpu_uuid   text PRIMARY KEY,
    replica_id text NOT NULL REFERENCES replica ON DELETE CASCADE
);
CREATE INDEX gpu_reservation_replica ON gpu_reservation (replica_id);
