// Reads results through cursors of the server, ten rows at a time: Cursors HOST PORT USER MARK COUNT
import java.sql.Connection;
import java.sql.DriverManager;
import java.sql.PreparedStatement;
import java.sql.ResultSet;

public class Cursors {
    public static void main(String[] args) throws Exception {
        String url = "jdbc:mysql://" + args[0] + ":" + args[1] + "/toll?sslMode=DISABLED&allowPublicKeyRetrieval=true"
            + "&useServerPrepStmts=true&useCursorFetch=true&defaultFetchSize=10";
        try (Connection session = DriverManager.getConnection(url, args[2], System.getenv("MYSQL_PWD"));
            PreparedStatement statement = session.prepareStatement(
                "select id, 'toll_" + args[3] + "_rows' from numbers where id > ?")) {
            for (int i = 0; i < Integer.parseInt(args[4]); i++) {
                statement.setInt(1, i);
                try (ResultSet result = statement.executeQuery()) {
                    int rows = 0;
                    while (result.next()) {
                        rows++;
                    }
                    System.out.println(rows);
                }
            }
        }
    }
}
