-- The slow loop tick by tick: inputs of the controllers, their outputs, convergence. Bounded: a tick
-- drops what is older than the server keeps.
CREATE TABLE slow_history (
    tick_id bigint PRIMARY KEY,
    doc     json NOT NULL
);
