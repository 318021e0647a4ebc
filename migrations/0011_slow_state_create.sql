CREATE TABLE slow_state (
    singleton boolean PRIMARY KEY DEFAULT true CHECK (singleton),
    doc       json NOT NULL
);
