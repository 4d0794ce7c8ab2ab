import org.apache.flink.table.api.EnvironmentSettings;
import org.apache.flink.table.api.TableEnvironment;

/** Each argument is a statement of SQL. The last one is the job. */
public class Sql {
    public static void main(String[] arguments) throws Exception {
        TableEnvironment environment = TableEnvironment.create(EnvironmentSettings.inStreamingMode());
        for (int at = 0; at < arguments.length; at++) {
            environment.executeSql(arguments[at]);
        }
    }
}
