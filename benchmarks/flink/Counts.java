import java.io.FileOutputStream;
import java.io.OutputStream;
import java.nio.file.Files;
import java.nio.file.Paths;
import java.time.Duration;
import java.util.ArrayList;
import java.util.Collection;
import java.util.Iterator;
import java.util.Map;
import java.util.Optional;
import java.util.TreeMap;
import java.util.UUID;
import org.apache.flink.api.common.eventtime.WatermarkStrategy;
import org.apache.flink.api.common.functions.FlatMapFunction;
import org.apache.flink.api.common.functions.OpenContext;
import org.apache.flink.api.common.serialization.SimpleStringEncoder;
import org.apache.flink.api.common.state.ValueState;
import org.apache.flink.api.common.state.ValueStateDescriptor;
import org.apache.flink.api.common.typeinfo.TypeInformation;
import org.apache.flink.api.common.typeinfo.Types;
import org.apache.flink.api.java.functions.KeySelector;
import org.apache.flink.api.java.tuple.Tuple2;
import org.apache.flink.connector.file.sink.FileSink;
import org.apache.flink.connector.file.src.FileSource;
import org.apache.flink.connector.file.src.FileSourceSplit;
import org.apache.flink.connector.file.src.assigners.FileSplitAssigner;
import org.apache.flink.connector.file.src.reader.TextLineInputFormat;
import org.apache.flink.core.fs.Path;
import org.apache.flink.streaming.api.datastream.DataStream;
import org.apache.flink.streaming.api.datastream.SingleOutputStreamOperator;
import org.apache.flink.streaming.api.environment.StreamExecutionEnvironment;
import org.apache.flink.streaming.api.functions.KeyedProcessFunction;
import org.apache.flink.streaming.api.functions.sink.filesystem.rollingpolicies.OnCheckpointRollingPolicy;
import org.apache.flink.util.Collector;

/**
 * The counts of benchmarks/recovery_work.py by Flink: files of tweets -> parser -> 15 keyed counts -> 15 exactly-once file sinks.
 *
 * Arguments: folder of tweets, folder of results, nanoseconds of service a row, number of queries. Types are raw and casts are
 * written out, as Janino compiles this.
 */
public class Counts {
    /** "tweet tag tag ..." to ("tweet position", tag); positions are from 0. */
    public static class Parse implements FlatMapFunction {
        public void flatMap(Object line, Collector out) {
            String[] words = ((String) line).split(" ");
            for (int at = 1; at < words.length; at++) {
                out.collect(new Tuple2(words[0] + " " + (at - 1), words[at]));
            }
        }
    }

    /** Gives files in the order of their names, as a backlog is to be read in the order in which it came. */
    public static class InOrder implements FileSplitAssigner {
        final TreeMap waiting = new TreeMap();

        public Optional getNext(String host) {
            Map.Entry first = this.waiting.pollFirstEntry();
            return first == null ? Optional.empty() : Optional.of(first.getValue());
        }

        public void addSplits(Collection splits) {
            for (Iterator all = splits.iterator(); all.hasNext();) {
                FileSourceSplit split = (FileSourceSplit) all.next();
                this.waiting.put(split.path().getName() + " " + split.offset(), split);
            }
        }

        public Collection remainingSplits() {
            return new ArrayList(this.waiting.values());
        }
    }

    public static class InOrderProvider implements FileSplitAssigner.Provider {
        public FileSplitAssigner create(Collection splits) {
            InOrder found = new InOrder();
            found.addSplits(splits);
            return found;
        }
    }

    public static class Tag implements KeySelector {
        public Object getKey(Object row) {
            return ((Tuple2) row).f1;
        }
    }

    /** One server a process: a row reserves time on a clock that all tasks of the process share, and its task sleeps until then. */
    public static class Server {
        static long free = 0L;

        static synchronized long reserved(long nanos) {
            free = Math.max(free, System.nanoTime()) + nanos;
            return free;
        }

        public static void serve(long nanos) throws InterruptedException {
            if (nanos > 0L) {
                long ahead = reserved(nanos) - System.nanoTime();
                if (ahead > 3000000L) {
                    Thread.sleep(ahead / 1000000L);
                }
            }
        }
    }

    /** Counts by tag, gives "tweet position tag count", and logs when each was computed: "tweet position milliseconds". */
    public static class Count extends KeyedProcessFunction {
        final String probe;
        final long nanos;
        transient ValueState state;
        transient OutputStream log;

        public Count(String probe, long nanos) {
            this.probe = probe;
            this.nanos = nanos;
        }

        public void open(OpenContext context) throws Exception {
            this.state = this.getRuntimeContext().getState(new ValueStateDescriptor("count", Types.LONG));
            Files.createDirectories(Paths.get(this.probe, new String[0]));
            this.log = new FileOutputStream(this.probe + "/" + UUID.randomUUID());
        }

        public void processElement(Object row, KeyedProcessFunction.Context context, Collector out) throws Exception {
            Server.serve(this.nanos);
            Tuple2 pair = (Tuple2) row;
            Object before = this.state.value();
            long count = before == null ? 1L : ((Long) before).longValue() + 1L;
            this.state.update(Long.valueOf(count));
            out.collect(pair.f0 + " " + pair.f1 + " " + count);
            this.log.write((pair.f0 + " " + System.currentTimeMillis() + "\n").getBytes());
        }

        public void close() throws Exception {
            if (this.log != null) {
                this.log.close();
            }
        }
    }

    public static void main(String[] arguments) throws Exception {
        String out = arguments[1];
        long nanos = Long.parseLong(arguments[2]);
        int queries = Integer.parseInt(arguments[3]);
        StreamExecutionEnvironment environment = StreamExecutionEnvironment.getExecutionEnvironment();
        FileSource.FileSourceBuilder builder = (FileSource.FileSourceBuilder) FileSource.forRecordStreamFormat(
            new TextLineInputFormat(), new Path[] {new Path("file://" + arguments[0])})
            .monitorContinuously(Duration.ofMillis(100L));
        // by reflection, as Janino takes the interface here and in the signature for two
        builder.getClass().getMethod("setSplitAssigner", new Class[] {FileSplitAssigner.Provider.class})
            .invoke(builder, new Object[] {new InOrderProvider()});
        FileSource source = (FileSource) builder.build();
        SingleOutputStreamOperator lines = environment.fromSource(source, WatermarkStrategy.noWatermarks(), "source")
            .setParallelism(1).uid("source");
        DataStream tags = lines.rebalance().flatMap(new Parse())
            .returns(Types.TUPLE(new TypeInformation[] {Types.STRING, Types.STRING})).name("parser").uid("parser");
        for (int query = 0; query < queries; query++) {
            SingleOutputStreamOperator counted = tags.keyBy(new Tag(), Types.STRING)
                .process(new Count(out + "/probe/" + query, nanos), Types.STRING).name("o" + query).uid("o" + query);
            FileSink sink = (FileSink) ((FileSink.DefaultRowFormatBuilder) FileSink.forRowFormat(
                new Path("file://" + out + "/sink/" + query), new SimpleStringEncoder("UTF-8"))
                .withRollingPolicy(OnCheckpointRollingPolicy.build())).build();
            counted.sinkTo(sink).name("sink" + query).uid("sink" + query);
        }
        environment.execute("counts");
    }
}
