-- Keyed digests of bearer tokens, never the tokens.
CREATE TABLE token (
    token_hash bytea PRIMARY KEY,
    role       text NOT NULL,
    identity   text NOT NULL,
    host_id    text,
    created_at bigint NOT NULL
);
