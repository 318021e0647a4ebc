-- Measured serving performance, one row per published point. A row keeps its place when it is
-- imported again; a changed one replaces the old.
CREATE TABLE performance (
    source      text NOT NULL,
    row_id      text NOT NULL,
    model       text NOT NULL,
    gpu_type    text NOT NULL,
    doc         json NOT NULL,
    imported_at bigint NOT NULL,
    imported_by text NOT NULL,
    PRIMARY KEY (source, row_id)
);
CREATE INDEX performance_scope ON performance (model, gpu_type);
