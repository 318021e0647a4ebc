//! The migrated schema against its golden dump.

use expect_test::expect_file;
use sqlx::Row;

use crate::support::TestDatabase;

/// Tables, columns, constraints and indexes, in an order of their own. PostgreSQL 18 lists NOT NULL
/// as constraints; earlier versions do not.
const DUMP: &str = r#"
    SELECT line FROM (
        SELECT table_name, 0 AS part, ordinal_position::int AS place,
               '  ' || column_name || ' ' || data_type
               || CASE WHEN is_nullable = 'NO' THEN ' not null' ELSE '' END
               || coalesce(' default ' || column_default, '')
               || CASE WHEN is_identity = 'YES' THEN ' identity' ELSE '' END AS line
        FROM information_schema.columns WHERE table_schema = 'public'
        UNION ALL
        SELECT relname, -1, 0, relname || CASE relkind WHEN 'p' THEN ' (partitioned)' ELSE '' END
        FROM pg_class WHERE relnamespace = 'public'::regnamespace AND relkind IN ('r', 'p')
        UNION ALL
        SELECT conrelid::regclass::text, 1, 0, '  ' || conname || ' ' || pg_get_constraintdef(oid)
        FROM pg_constraint WHERE connamespace = 'public'::regnamespace AND conrelid <> 0 AND contype <> 'n'
        UNION ALL
        SELECT tablename, 2, 0, '  ' || indexdef FROM pg_indexes WHERE schemaname = 'public'
    ) AS dump (table_name, part, place, line)
    WHERE table_name <> '_sqlx_migrations'
    ORDER BY trim('"' FROM table_name) COLLATE "C", part, place, line COLLATE "C""#;

#[tokio::test]
async fn the_schema_is_the_golden_one() {
    let database = TestDatabase::new().await;
    let rows = sqlx::query(DUMP)
        .fetch_all(&mut database.raw().await)
        .await
        .unwrap();
    let mut dump: String = rows.iter().map(|r| r.get::<String, _>(0) + "\n").collect();
    assert!(dump.lines().count() > 100, "the dump is not empty");
    dump.insert_str(
        0,
        "The migrated schema; UPDATE_EXPECT=1 writes this file.\n",
    );
    expect_file!["./schema.golden"].assert_eq(&dump);
}

#[tokio::test]
async fn hazard_b16_migrating_again_changes_nothing() {
    let database = TestDatabase::new().await;
    database.store.migrate().await.unwrap();
    let (a, b) = tokio::join!(database.store.migrate(), database.store.migrate());
    a.unwrap();
    b.unwrap();
}

#[tokio::test]
async fn hazard_b16_a_newer_database_is_refused() {
    let database = TestDatabase::new().await;
    let sql =
        "INSERT INTO _sqlx_migrations (version, description, success, checksum, execution_time)
               VALUES (9999, 'from the future', true, '\\x00', 0)";
    sqlx::query(sql)
        .execute(&mut database.raw().await)
        .await
        .unwrap();
    let error = database.store.migrate().await.unwrap_err();
    assert!(
        matches!(error, koi_server::store::StoreError::Migration(_)),
        "{error:?}"
    );
}
