-- How the detector was set, by the tick that set it; the newest counts. The document is opaque: its
-- version says whether a build can read it.
CREATE TABLE calibration (
    tick_id bigint PRIMARY KEY,
    version bigint NOT NULL,
    doc     json NOT NULL
);
