-- Mechanisms beside the catalog's seeds, and the status of seeds that were archived.
CREATE TABLE mechanism (
    mechanism_id text PRIMARY KEY,
    status       text NOT NULL,
    doc          json NOT NULL
);
