CREATE TABLE request (
    identity     text NOT NULL,
    key          text NOT NULL,
    payload_hash text NOT NULL,
    object       text NOT NULL,
    created_at   bigint NOT NULL,
    PRIMARY KEY (identity, key)
);
CREATE INDEX request_created_at ON request (created_at);
