CREATE TABLE audit (
    audit_id bigint GENERATED ALWAYS AS IDENTITY PRIMARY KEY,
    at       bigint NOT NULL,
    epoch    bigint NOT NULL,
    actor    text NOT NULL,
    action   text NOT NULL,
    object   text NOT NULL,
    reason   text NOT NULL
);
CREATE INDEX audit_object ON audit (object, audit_id DESC);
