-- Rows of evidence and belief events are long and written a thousand at a time; the usual compression
-- would take most of that. Where the server was built without the faster one, the usual one stays.
DO $$
BEGIN
    ALTER TABLE evidence ALTER COLUMN doc SET COMPRESSION lz4;
    ALTER TABLE belief_event ALTER COLUMN subjects SET COMPRESSION lz4;
EXCEPTION WHEN feature_not_supported THEN
    RAISE NOTICE 'evidence keeps its compression: %', SQLERRM;
END
$$;
