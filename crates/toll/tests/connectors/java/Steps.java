// Carries out a plan with MySQL's Connector/J, or with MariaDB's, which sends batches in bulk.
import java.nio.file.Files;
import java.nio.file.Path;
import java.sql.Connection;
import java.sql.DriverManager;
import java.sql.PreparedStatement;
import java.sql.ResultSet;
import java.sql.SQLException;
import java.sql.Statement;
import java.util.Arrays;

public class Steps {
    private static final String MYSQL = "?sslMode=DISABLED&useServerPrepStmts=true&useCompression=";
    private static final String MARIADB = "?sslMode=disable&useServerPrepStmts=true&useBulkStmts=true&useCompression=";

    private static void bind(PreparedStatement statement, String[] fields, int from, int count) throws SQLException {
        for (int i = 0; i < count; i++) {
            String field = fields[from + i];
            if (field.equals("NULL")) {
                statement.setObject(i + 1, null);
            } else if (field.startsWith("'")) {
                statement.setString(i + 1, field.substring(1));
            } else {
                statement.setLong(i + 1, Long.parseLong(field));
            }
        }
    }

    private static String told(Statement statement, boolean hasRows) throws SQLException {
        if (!hasRows) {
            return "affected " + statement.getUpdateCount();
        }
        int rows = 0;
        try (ResultSet result = statement.getResultSet()) {
            while (result.next()) {
                rows++;
            }
        }
        return "rows " + rows;
    }

    private static String batch(Connection session, String[] fields) throws SQLException {
        int width = Integer.parseInt(fields[2]);
        try (PreparedStatement statement = session.prepareStatement(fields[1])) {
            for (int at = 3; at < fields.length; at += width) {
                bind(statement, fields, at, width);
                statement.addBatch();
            }
            // What is sent in bulk is counted altogether (SUCCESS_NO_INFO for each row).
            int affected = Arrays.stream(statement.executeBatch()).map(n -> n == Statement.SUCCESS_NO_INFO ? 1 : n).sum();
            return "affected " + affected;
        }
    }

    private static String step(Connection session, String[] fields) throws SQLException {
        if (fields[0].equals("batch")) {
            return batch(session, fields);
        }
        if (fields[0].equals("text")) {
            try (Statement statement = session.createStatement()) {
                return told(statement, statement.execute(fields[1]));
            }
        }
        try (PreparedStatement statement = session.prepareStatement(fields[1])) {
            bind(statement, fields, 2, fields.length - 2);
            return told(statement, statement.execute());
        }
    }

    public static void main(String[] args) throws Exception {
        String options = (args[0].equals("mysql") ? MYSQL : MARIADB) + args[4].equals("compressed");
        String url = "jdbc:" + args[0] + "://" + args[1] + ":" + args[2] + "/sbtest" + options;
        try (Connection session = DriverManager.getConnection(url, args[3], System.getenv("MYSQL_PWD"))) {
            for (String line : Files.readAllLines(Path.of(args[5]))) {
                try {
                    System.out.println(step(session, line.split("\t")));
                } catch (SQLException refused) {
                    if (refused.getErrorCode() == 0) {
                        throw refused;
                    }
                    System.out.println("error " + refused.getErrorCode());
                }
            }
        }
    }
}
