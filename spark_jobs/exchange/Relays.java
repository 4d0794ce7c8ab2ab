package reprise;

import java.io.BufferedInputStream;
import java.io.BufferedOutputStream;
import java.io.DataInputStream;
import java.io.DataOutputStream;
import java.io.EOFException;
import java.io.IOException;
import java.io.InputStream;
import java.io.OutputStream;
import java.lang.invoke.MethodHandles;
import java.lang.invoke.MethodType;
import java.net.StandardProtocolFamily;
import java.net.UnixDomainSocketAddress;
import java.nio.ByteBuffer;
import java.nio.channels.Channels;
import java.nio.channels.SocketChannel;
import java.nio.file.Files;
import java.nio.file.Path;
import java.util.ArrayList;
import java.util.Collections;
import java.util.HexFormat;
import java.util.Iterator;
import java.util.List;
import java.util.concurrent.locks.ReentrantLock;
import java.util.regex.Matcher;
import java.util.regex.Pattern;
import org.apache.spark.Partition;
import org.apache.spark.Partitioner;
import org.apache.spark.PipelinedShuffleDependency;
import org.apache.spark.SparkConf;
import org.apache.spark.SparkContext;
import org.apache.spark.SparkEnv;
import org.apache.spark.TaskContext;
import org.apache.spark.api.java.JavaRDD;
import org.apache.spark.api.java.function.Function2;
import org.apache.spark.api.java.function.PairFlatMapFunction;
import org.apache.spark.rdd.RDD;
import org.apache.spark.rdd.ShuffledRDD;
import org.apache.spark.rpc.IsolatedRpcEndpoint;
import org.apache.spark.rpc.RpcAddress;
import org.apache.spark.rpc.RpcCallContext;
import org.apache.spark.rpc.RpcEndpointRef;
import org.apache.spark.rpc.RpcEnv;
import org.apache.spark.serializer.DeserializationStream;
import org.apache.spark.serializer.SerializationStream;
import org.apache.spark.serializer.Serializer;
import org.apache.spark.serializer.SerializerInstance;
import org.apache.spark.shuffle.ShuffleWriteProcessor;
import org.apache.spark.shuffle.checksum.RowBasedChecksum;
import org.apache.spark.unsafe.Platform;
import org.apache.spark.util.RpcUtils;
import org.apache.spark.util.TaskCompletionListener;
import scala.Function1;
import scala.Option;
import scala.PartialFunction;
import scala.Tuple2;
import scala.collection.immutable.Seq;
import scala.jdk.javaapi.CollectionConverters;
import scala.reflect.ClassTag;
import scala.reflect.ClassTag$;
import scala.runtime.AbstractPartialFunction;
import scala.runtime.BoxedUnit;

/**
 * The JVM's part of a continuous exchange: one Spark job with two tasks a node, joined by Spark's pipelined shuffle.
 *
 * The outlet of a node reads frames from its partition host and sends each to the slot that it is for; the inlet hands
 * what came for its slot to its host. What crosses the network is arrays of bytes, written and read below (Wire): no object
 * is deserialised from it. Spark 4.3 neither authenticates nor encrypts this kind of shuffle: hosts seal their frames.
 *
 * Compiled at the driver's start by janino, which knows no lambdas and no diamonds; types of Spark stand without their
 * parameters, as janino makes no bridges. Comments of Relays.java are for readers of the project, not for users.
 */
public final class Relays {

  public Relays() {}

  /** The RDD whose count is an exchange that ends when it is cancelled, or fails. */
  public JavaRDD exchange(SparkContext context, int number, List hosts, List executors) {
    Plan plan = new Plan(number, executors);
    return new JavaRDD(
        crossing(context, new Outlet(plan), hosts, executors), ClassTag$.MODULE$.apply(Tuple2.class))
        .mapPartitionsWithIndex(new Inlet(plan), false);
  }

  /** The RDD of an exchange without partition hosts: each node sends one frame to each, and gives how many came to it. */
  public JavaRDD trial(SparkContext context, List hosts, List executors) {
    Plan plan = new Plan(0, executors);
    return new JavaRDD(
        crossing(context, new TrialOutlet(plan), hosts, executors), ClassTag$.MODULE$.apply(Tuple2.class))
        .mapPartitionsWithIndex(new TrialInlet(plan), false);
  }

  /** The driver's end of the orders and reports of an exchange. */
  public Desk desk(int number, int slots) {
    return new Desk(number, slots);
  }

  private static RDD crossing(SparkContext context, PairFlatMapFunction outlet, List hosts, List executors) {
    ClassTag bytes = ClassTag$.MODULE$.apply(byte[].class);
    ClassTag any = ClassTag$.MODULE$.apply(Object.class);
    String[] places = new String[hosts.size()];
    List rows = new ArrayList();
    for (int slot = 0; slot < places.length; slot++) {
      places[slot] = "executor_" + hosts.get(slot) + "_" + executors.get(slot);
      byte[] row = ByteBuffer.allocate(4).putInt(slot).array();
      rows.add(new Tuple2(row, seq(Collections.singletonList(places[slot]))));
    }
    RDD begin = context.makeRDD(seq(rows), bytes);
    RDD frames = new JavaRDD(begin, bytes).mapPartitionsToPair(outlet).rdd();
    Slots slots = new Slots(places.length);
    PipelinedShuffleDependency dependency = new PipelinedShuffleDependency(
        frames, slots, new Wire(), Option.empty(), Option.empty(), false, new ShuffleWriteProcessor(),
        new RowBasedChecksum[0], any, bytes, bytes);
    return new Crossing(frames, slots, dependency, places, any, bytes);
  }

  static Seq seq(List items) {
    return CollectionConverters.asScala(items).toSeq();
  }

  /**
   * What SparkEnv.get() has by this name. Looked up one by one, as nothing can list the methods of SparkEnv, neither janino nor
   * reflection: some of them are of classes (protobuf) that the distribution does not have.
   */
  static Object fromEnvironment(String name, Class type) {
    try {
      MethodHandles.Lookup lookup = MethodHandles.publicLookup();
      Object environment = lookup.findStatic(SparkEnv.class, "get", MethodType.methodType(SparkEnv.class))
          .invokeWithArguments(new Object[0]);
      return lookup.findVirtual(SparkEnv.class, name, MethodType.methodType(type))
          .invokeWithArguments(new Object[] {environment});
    } catch (Throwable error) {
      throw new IllegalStateException("SparkEnv has no " + name, error);
    }
  }

  /** What reads a pipelined shuffle, with a place for each slot; an ordinary one of Spark would make its own dependency. */
  public static final class Crossing extends ShuffledRDD {
    private final transient PipelinedShuffleDependency dependency;
    private final transient String[] places;

    public Crossing(
        RDD frames, Partitioner slots, PipelinedShuffleDependency dependency, String[] places, ClassTag any,
        ClassTag bytes) {
      super(frames, slots, any, bytes, bytes);
      this.dependency = dependency;
      this.places = places;
    }

    public Seq getDependencies() {
      return seq(Collections.singletonList(dependency));
    }

    public Seq getPreferredLocations(Partition slot) {
      return seq(Collections.singletonList(places[slot.index()]));
    }
  }

  /** A frame's key is the slot that it goes to. */
  public static final class Slots extends Partitioner {
    private final int count;

    public Slots(int count) {
      this.count = count;
    }

    public int numPartitions() {
      return count;
    }

    public int getPartition(Object key) {
      int slot = ((Integer) key).intValue();
      if (slot < 0 || slot >= count) {
        throw new IllegalArgumentException("a frame is for slot " + slot + " of " + count);
      }
      return slot;
    }
  }

  /** What all relays of an exchange are told. */
  public static final class Plan implements java.io.Serializable {
    final int number;
    final String[] executors;

    Plan(int number, List executors) {
      this.number = number;
      this.executors = (String[]) executors.toArray(new String[executors.size()]);
    }

    /** Spark runs a task anywhere when the executor that it prefers is gone. */
    void requireHere(int slot) {
      String here = (String) fromEnvironment("executorId", String.class);
      if (!here.equals(executors[slot])) {
        throw new IllegalStateException(
            "slot " + slot + " belongs to executor " + executors[slot] + ", but Spark ran its task on executor " + here);
      }
    }
  }

  /** What Spark's RPC needs of an end; messages come one at a time, on a thread of this end's own. */
  abstract static class End implements IsolatedRpcEndpoint {
    final RpcEnv env = (RpcEnv) fromEnvironment("rpcEnv", RpcEnv.class);
    RpcEndpointRef self;

    void open(String name) {
      self = env.setupEndpoint(name, this);
    }

    public void close() {
      env.stop(self);
    }

    abstract void takes(Object message) throws Exception;

    public RpcEnv rpcEnv() {
      return env;
    }

    public int threadCount() {
      return 1;
    }

    public RpcEndpointRef self() {
      return self;
    }

    public PartialFunction receive() {
      return new Taking(this);
    }

    public PartialFunction receiveAndReply(RpcCallContext context) {
      return new Taking(this);
    }

    public void onError(Throwable error) {}

    public void onConnected(RpcAddress address) {}

    public void onDisconnected(RpcAddress address) {}

    public void onNetworkError(Throwable error, RpcAddress address) {}

    public void onStart() {}

    public void onStop() {}

    public void stop() {
      close();
    }
  }

  static final class Taking extends AbstractPartialFunction {
    private final End end;

    Taking(End end) {
      this.end = end;
    }

    public boolean isDefinedAt(Object message) {
      return true;
    }

    public Object applyOrElse(Object message, Function1 otherwise) {
      try {
        end.takes(message);
      } catch (Exception error) {
        throw new IllegalStateException(error);
      }
      return BoxedUnit.UNIT;
    }
  }

  /**
   * The driver's end: it sends each inlet the orders of a round, and collects what hosts answer. Both begin with eight bytes
   * that name the round; what answers another round than the last one is dropped. A host answers round 0, which nobody asks
   * for, when both relays are connected to it.
   */
  public static final class Desk extends End {
    private final RpcEndpointRef[] inlets;
    private final Object[] connected;
    private final Object[] met;
    private final byte[][] answers;
    private long round;

    Desk(int number, int slots) {
      this.inlets = new RpcEndpointRef[slots];
      this.connected = new Object[slots];
      this.met = new Object[slots];
      this.answers = new byte[slots][];
      open(name(number));
    }

    static String name(int number) {
      return "reprise-exchange-" + number;
    }

    synchronized void takes(Object message) {
      Object[] told = (Object[]) message;
      int slot = ((Integer) told[0]).intValue();
      if (told[1] instanceof RpcEndpointRef) {
        inlets[slot] = (RpcEndpointRef) told[1];
        notifyAll();
        return;
      }
      if (told[1] instanceof Boolean) {
        met[slot] = told[1];
        notifyAll();
        return;
      }
      long answered = ByteBuffer.wrap((byte[]) told[1]).getLong();
      if (answered == 0) {
        connected[slot] = Boolean.TRUE;
        notifyAll();
      } else if (answered == round) {
        answers[slot] = (byte[]) told[1];
        notifyAll();
      }
    }

    /** Whether all hosts can be asked, can answer and reach each other, after so many milliseconds at most. */
    public boolean ready(long patience) throws InterruptedException {
      return complete(new Object[][] {connected, met, inlets}, patience);
    }

    /** Whether all inlets have told where they are, after so many milliseconds at most. */
    public boolean met(long patience) throws InterruptedException {
      return complete(new Object[][] {inlets}, patience);
    }

    /** Begin a round. Orders: length and bytes of what each slot is sent, in order. */
    public synchronized void begin(long round, byte[] orders) {
      this.round = round;
      ByteBuffer all = ByteBuffer.wrap(orders);
      for (int slot = 0; slot < inlets.length; slot++) {
        answers[slot] = null;
        byte[] order = new byte[all.getInt()];
        all.get(order);
        inlets[slot].send(order);
      }
    }

    /** Whether all have answered, after so many milliseconds at most. */
    public boolean all(long patience) throws InterruptedException {
      return complete(new Object[][] {answers}, patience);
    }

    /** Not private: of such a method janino drops `synchronized`. */
    synchronized boolean complete(Object[][] found, long patience) throws InterruptedException {
      long end = System.nanoTime() + patience * 1000000;
      while (true) {
        boolean complete = true;
        for (int kind = 0; kind < found.length; kind++) {
          for (int slot = 0; slot < found[kind].length; slot++) {
            complete = complete && found[kind][slot] != null;
          }
        }
        long left = (end - System.nanoTime()) / 1000000;
        if (complete || left <= 0) {
          return complete;
        }
        wait(left);
      }
    }

    /** Length and bytes of what each slot has answered so far; length 0: nothing. */
    public synchronized byte[] answers() {
      int size = 0;
      for (int slot = 0; slot < answers.length; slot++) {
        size += 4 + (answers[slot] == null ? 0 : answers[slot].length);
      }
      ByteBuffer all = ByteBuffer.allocate(size);
      for (int slot = 0; slot < answers.length; slot++) {
        byte[] answer = answers[slot] == null ? new byte[0] : answers[slot];
        all.putInt(answer.length).put(answer);
      }
      return all.array();
    }
  }

  /** An inlet's end: it hands orders to the host. */
  static final class Post extends End {
    private final ToHost host;
    private final int slot;
    private final RpcEndpointRef desk;

    Post(int number, int slot, ToHost host) {
      this.host = host;
      this.slot = slot;
      this.desk = desk(number);
      open(Desk.name(number) + "-" + slot);
      try {
        desk.send(new Object[] {Integer.valueOf(slot), self});
      } catch (RuntimeException error) { // the exchange is over
        close();
        throw error;
      }
    }

    /** Where what a host answers goes. */
    static RpcEndpointRef desk(int number) {
      SparkConf conf = (SparkConf) fromEnvironment("conf", SparkConf.class);
      return RpcUtils.makeDriverRef(Desk.name(number), conf, (RpcEnv) fromEnvironment("rpcEnv", RpcEnv.class));
    }

    /** A greeting has come from each slot. */
    void met() {
      desk.send(new Object[] {Integer.valueOf(slot), Boolean.TRUE});
    }

    void takes(Object message) throws Exception {
      host.order((byte[]) message);
    }
  }

  /** How a relay reaches the partition host of its node: a socket file in the executor's folder, with a key beside it. */
  static final class Meeting {
    static final long PATIENCE_NS = 30000000000L;
    static final Pattern KEY = Pattern.compile("\"key\"\\s*:\\s*\"([0-9a-f]{64})\"");

    /** A connection that the host has accepted; the host may come up a little later than the relay. */
    static SocketChannel with(byte kind, Plan plan, int slot) throws Exception {
      plan.requireHere(slot);
      long start = System.nanoTime();
      while (true) {
        String why = "it does not know the key";
        try {
          SocketChannel channel = attempt(kind, plan.number, slot);
          if (channel != null) {
            return channel;
          }
        } catch (IOException error) {
          why = error.toString();
        }
        if (System.nanoTime() - start > PATIENCE_NS) {
          throw new IllegalStateException("the partition host of slot " + slot + " does not answer: " + why);
        }
        Thread.sleep(50); // where the task was cancelled meanwhile this ends it
      }
    }

    /** Null where whoever listens does not take the key: the host has just been replaced. */
    private static SocketChannel attempt(byte kind, int number, int slot) throws IOException {
      Matcher key = KEY.matcher(Files.readString(Path.of("exchange.json")));
      if (!key.find()) {
        throw new IOException("exchange.json has no key");
      }
      SocketChannel channel = SocketChannel.open(StandardProtocolFamily.UNIX);
      try {
        channel.connect(UnixDomainSocketAddress.of("exchange.sock"));
        ByteBuffer hello = ByteBuffer.allocate(41);
        hello.put(kind).putInt(number).putInt(slot).put(HexFormat.of().parseHex(key.group(1))).flip();
        while (hello.hasRemaining()) {
          channel.write(hello);
        }
        ByteBuffer answer = ByteBuffer.allocate(1);
        int read = channel.read(answer);
        if (read == 1 && answer.get(0) == '+') {
          return channel;
        }
        channel.close();
        if (read == 1) {
          throw new IllegalStateException("the partition host of slot " + slot + " is in a later exchange than " + number);
        }
        return null;
      } catch (IOException error) {
        channel.close();
        throw error;
      }
    }
  }

  /** Bytes of a greeting; what hosts have sealed has more. */
  static final int GREETING = 4;

  /** Reads (slot, length, bytes) from the host, for ever. */
  public static final class Outlet implements PairFlatMapFunction {
    private final Plan plan;

    Outlet(Plan plan) {
      this.plan = plan;
    }

    public Iterator call(Object rows) throws Exception {
      int slot = slotOf(rows);
      quiet();
      SocketChannel channel = Meeting.with((byte) 'o', plan, slot);
      closeWithTask(channel);
      return new Outgoing(channel, slot, plan.executors.length, Post.desk(plan.number));
    }
  }

  static int slotOf(Object rows) {
    return ByteBuffer.wrap((byte[]) ((Iterator) rows).next()).getInt();
  }

  /** Spark warns each second of a record that is larger than its buffer, and ours is smaller than any. */
  static void quiet() {
    org.apache.logging.log4j.core.config.Configurator.setLevel(
        "org.apache.spark.shuffle.streaming.StreamingShuffleWriter", org.apache.logging.log4j.Level.ERROR);
  }

  static void closeWithTask(final SocketChannel channel) {
    TaskContext.get().addTaskCompletionListener(new TaskCompletionListener() {
      public void onTaskCompletion(TaskContext context) {
        try {
          channel.close();
        } catch (IOException error) {
          // nobody needs it any more
        }
      }
    });
  }

  /** First of all each slot is sent a greeting, by which its relay knows that frames of this node arrive. */
  static final class Outgoing implements Iterator {
    private final DataInputStream host;
    private final int slot;
    private final int slots;
    private final RpcEndpointRef desk;
    private int greeted;

    Outgoing(SocketChannel channel, int slot, int slots, RpcEndpointRef desk) {
      this.slots = slots;
      this.desk = desk;
      this.host = new DataInputStream(new BufferedInputStream(Channels.newInputStream(channel), 131072));
      this.slot = slot;
    }

    public boolean hasNext() {
      return true;
    }

    /** Waits for the host; ends with the host, and when the task is cancelled, as such a channel can be interrupted. */
    public Object next() {
      if (greeted < slots) {
        return new Tuple2(Integer.valueOf(greeted++), ByteBuffer.allocate(GREETING).putInt(slot).array());
      }
      try {
        int target = host.readInt();
        byte[] frame = new byte[host.readInt()];
        host.readFully(frame);
        while (target < 0) { // for the driver
          desk.send(new Object[] {Integer.valueOf(slot), frame});
          target = host.readInt();
          frame = new byte[host.readInt()];
          host.readFully(frame);
        }
        return new Tuple2(Integer.valueOf(target), frame);
      } catch (EOFException error) {
        throw new IllegalStateException("the partition host of slot " + slot + " has closed the connection");
      } catch (IOException error) {
        throw new IllegalStateException("the partition host of slot " + slot + " has gone away: " + error);
      }
    }

    public void remove() {
      throw new UnsupportedOperationException();
    }
  }

  /** Writes (length, bytes) to the host; of orders the length is negative. */
  static final class ToHost {
    private final DataOutputStream out;
    private final ReentrantLock turn = new ReentrantLock();

    ToHost(SocketChannel channel) {
      this.out = new DataOutputStream(new BufferedOutputStream(Channels.newOutputStream(channel), 131072));
    }

    void frame(byte[] frame) throws IOException, InterruptedException {
      write(frame.length, frame);
    }

    void order(byte[] order) throws IOException, InterruptedException {
      write(-order.length, order);
    }

    /** The host may not read for long: who waits for the other one must be able to end with its task. */
    private void write(int length, byte[] bytes) throws IOException, InterruptedException {
      turn.lockInterruptibly();
      try {
        out.writeInt(length);
        out.write(bytes, 0, bytes.length);
        out.flush();
      } finally {
        turn.unlock();
      }
    }
  }

  /** Hands the host what came for its slot, and what the driver orders. */
  public static final class Inlet implements Function2 {
    private final Plan plan;

    Inlet(Plan plan) {
      this.plan = plan;
    }

    public Object call(Object index, Object rows) throws Exception {
      int slot = ((Integer) index).intValue();
      Iterator arriving = (Iterator) rows;
      SocketChannel channel = Meeting.with((byte) 'i', plan, slot);
      closeWithTask(channel);
      ToHost host = new ToHost(channel);
      final Post post = new Post(plan.number, slot, host);
      TaskContext.get().addTaskCompletionListener(new TaskCompletionListener() {
        public void onTaskCompletion(TaskContext context) {
          post.close();
        }
      });
      boolean[] greeted = new boolean[plan.executors.length];
      int count = 0;
      while (arriving.hasNext()) {
        byte[] frame = (byte[]) ((Tuple2) arriving.next())._2();
        if (frame.length == GREETING) {
          int from = ByteBuffer.wrap(frame).getInt();
          count += greeted[from] ? 0 : 1;
          greeted[from] = true;
          if (count == greeted.length) {
            post.met();
          }
          continue;
        }
        try {
          host.frame(frame);
        } catch (IOException error) {
          throw new IllegalStateException("the partition host of slot " + slot + " has gone away: " + error);
        }
      }
      return Collections.emptyIterator();
    }
  }

  /** One frame to each slot, and the end. */
  public static final class TrialOutlet implements PairFlatMapFunction {
    private final Plan plan;

    TrialOutlet(Plan plan) {
      this.plan = plan;
    }

    public Iterator call(Object rows) throws Exception {
      int slot = slotOf(rows);
      plan.requireHere(slot);
      List frames = new ArrayList();
      for (int target = 0; target < plan.executors.length; target++) {
        byte[] frame = ByteBuffer.allocate(8).putInt(slot).putInt(target).array();
        frames.add(new Tuple2(Integer.valueOf(target), frame));
      }
      return frames.iterator();
    }
  }

  /** How many frames came that are for this slot, each from another one. */
  public static final class TrialInlet implements Function2 {
    private final Plan plan;

    TrialInlet(Plan plan) {
      this.plan = plan;
    }

    public Object call(Object index, Object rows) throws Exception {
      int slot = ((Integer) index).intValue();
      plan.requireHere(slot);
      new Post(plan.number, slot, null).close();
      Iterator arriving = (Iterator) rows;
      boolean[] from = new boolean[plan.executors.length];
      int count = 0;
      while (arriving.hasNext()) {
        ByteBuffer frame = ByteBuffer.wrap((byte[]) ((Tuple2) arriving.next())._2());
        int source = frame.getInt();
        if (frame.getInt() == slot && !from[source]) {
          from[source] = true;
          count++;
        }
      }
      return Collections.singletonList(Integer.valueOf(count)).iterator();
    }
  }

  /** Length and bytes of each frame, and nothing of its key. Spark's own serialisers would read objects of any class. */
  public static final class Wire extends Serializer implements java.io.Serializable {
    public Wire() {}

    public SerializerInstance newInstance() {
      return new WireInstance();
    }
  }

  static final class WireInstance extends SerializerInstance {
    WireInstance() {}

    public ByteBuffer serialize(Object value, ClassTag type) {
      throw new UnsupportedOperationException();
    }

    public Object deserialize(ByteBuffer bytes, ClassTag type) {
      throw new UnsupportedOperationException();
    }

    public Object deserialize(ByteBuffer bytes, ClassLoader loader, ClassTag type) {
      throw new UnsupportedOperationException();
    }

    public SerializationStream serializeStream(OutputStream out) {
      return new Written(new DataOutputStream(out));
    }

    public DeserializationStream deserializeStream(InputStream in) {
      return new Read(new DataInputStream(in));
    }
  }

  /** A record has 64 bytes at least: a shorter one would wait in Spark's buffer (networkBufferSize) for the next one. */
  static final class Written extends SerializationStream {
    private static final int LEAST = 64;
    private final DataOutputStream out;

    Written(DataOutputStream out) {
      this.out = out;
    }

    public SerializationStream writeObject(Object value, ClassTag type) {
      byte[] frame = (byte[]) value;
      try {
        out.writeInt(frame.length);
        out.write(frame, 0, frame.length);
        if (frame.length < LEAST) {
          out.write(new byte[LEAST - frame.length], 0, LEAST - frame.length);
        }
      } catch (IOException error) {
        throw new IllegalStateException(error);
      }
      return this;
    }

    public void flush() {}

    public void close() {}
  }

  static final class Read extends DeserializationStream {
    private static final int LEAST = 64;
    private final DataInputStream in;

    Read(DataInputStream in) {
      this.in = in;
    }

    public Object readKey(ClassTag type) {
      return null;
    }

    /** EOFException at the end, as Spark expects. */
    public Object readObject(ClassTag type) {
      try {
        int length = in.readInt();
        if (length < 0 || length > in.available()) {
          throw new IllegalStateException("a record of " + length + " bytes where " + in.available() + " have come");
        }
        byte[] frame = new byte[length];
        in.readFully(frame);
        if (length < LEAST) {
          in.readFully(new byte[LEAST - length]);
        }
        return frame;
      } catch (IOException error) {
        Platform.throwException(error); // not declared by Spark's method
        return null;
      }
    }

    public void close() {}
  }
}
